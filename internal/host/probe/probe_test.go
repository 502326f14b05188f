package probe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func good() Raw {
	return Raw{
		Release: "6.18", Arch: "amd64", Distribution: "Debian", Cores: 2, Memory: 1 << 30, Init: "systemd", Systemd: true, Journal: true,
		LandlockABI: 7, SignalFix: true, Seccomp: true, UserNotify: true, NoNewPrivs: true, AppArmorUserNS: -1,
		Overlay: true, Btrfs: true, IDMap: true, Cgroup: "v2", Controllers: []string{"cpu", "memory"}, LSM: "landlock,yama",
		UnprivBPF: 2, Ptrace: 1, IOURing: 0, PidfdOpen: true, CloseRange: true,
	}
}

// Spec: OSA-09. The verdict follows the worst layer.
func TestStrength(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil   func(*Raw)
		root    bool
		verdict string
		layer   string // one that isn't ok
		detail  string
	}{
		"all, root":       {func(*Raw) {}, true, "full", "", ""},
		"rootless":        {func(*Raw) {}, false, "reduced", "identity", "same user"},
		"old landlock":    {func(r *Raw) { r.LandlockABI = 2 }, true, "reduced", "landlock", "truncation, tcp, device ioctl, signals"},
		"unfixed signals": {func(r *Raw) { r.SignalFix = false }, true, "reduced", "landlock", "signals"},
		"no landlock":     {func(r *Raw) { r.LandlockABI = 0 }, true, "unsafe", "landlock", "none"},
		"no seccomp":      {func(r *Raw) { r.Seccomp = false }, true, "unsafe", "syscall filter", "no seccomp"},
		"no nnp":          {func(r *Raw) { r.NoNewPrivs = false }, true, "unsafe", "privileges", "no_new_privs"},
		"no close_range":  {func(r *Raw) { r.CloseRange = false }, true, "unsafe", "descriptors", "close_range"},
		"both weak":       {func(r *Raw) { r.Seccomp = false }, false, "unsafe", "syscall filter", "no seccomp"},
	} {
		r := good()
		tt.spoil(&r)
		got := r.Strength(tt.root)
		if got.Verdict != tt.verdict || got.Summary == "" {
			t.Errorf("%s: %+v, want %s", name, got, tt.verdict)
		}
		if tt.layer != "" && !strings.Contains(got.Summary, tt.layer) {
			t.Errorf("%s: summary %q does not name %q", name, got.Summary, tt.layer)
		}
		found := tt.layer == ""
		for _, l := range got.Layers {
			found = found || (l.Name == tt.layer && l.State != OK && strings.Contains(l.Detail, tt.detail))
		}
		if !found || len(got.Lines()) != len(got.Layers) {
			t.Errorf("%s: no layer %q with %q in %q", name, tt.layer, tt.detail, got.Lines())
		}
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	states := func(r Raw) map[string]State {
		m := map[string]State{}
		for _, f := range r.Facts() {
			m[f.Name] = f.State
			if (f.Next == "") != (f.State == OK || f.State == Info) || f.Value == "" {
				t.Errorf("%+v: next step or value missing, or one too many", f)
			}
		}
		return m
	}
	base := states(good())
	for name, s := range base {
		if s != OK && s != Info {
			t.Errorf("good host: %s is %s", name, s)
		}
	}
	for name, tt := range map[string]struct {
		spoil func(*Raw)
		want  map[string]State // what differs
	}{
		"arch":       {func(r *Raw) { r.Arch = "riscv64" }, map[string]State{"architecture": Unsafe}},
		"init":       {func(r *Raw) { r.Systemd = false; r.Init = "" }, map[string]State{"init": Absent}},
		"journal":    {func(r *Raw) { r.Journal = false }, map[string]State{"journal": Absent}},
		"landlock":   {func(r *Raw) { r.LandlockABI = 0 }, map[string]State{"landlock": Unsafe}},
		"landlock 2": {func(r *Raw) { r.LandlockABI = 2 }, map[string]State{"landlock": Reduced}},
		"userns":     {func(r *Raw) { r.UserNS = "operation not permitted" }, map[string]State{"user namespaces": Absent}},
		"apparmor":   {func(r *Raw) { r.AppArmorUserNS = 1 }, map[string]State{"user namespaces": Reduced}},
		"hybrid":     {func(r *Raw) { r.Cgroup = "hybrid"; r.Controllers = nil }, map[string]State{"control groups": Reduced}},
		"v1":         {func(r *Raw) { r.Cgroup = "v1" }, map[string]State{"control groups": Reduced}},
		"no cgroups": {func(r *Raw) { r.Cgroup = "" }, map[string]State{"control groups": Absent}},
		"bpf":        {func(r *Raw) { r.UnprivBPF = 0 }, map[string]State{"unprivileged bpf": Unsafe}},
		"bpf ?":      {func(r *Raw) { r.UnprivBPF = -1 }, map[string]State{"unprivileged bpf": Info}},
		"ptrace":     {func(r *Raw) { r.Ptrace = 0 }, map[string]State{"ptrace scope": Reduced}},
		"no yama":    {func(r *Raw) { r.Ptrace = -1 }, map[string]State{"ptrace scope": Info}},
		"io_uring":   {func(r *Raw) { r.IOURing = 2; r.LSM = ""; r.Virtual = "container"; r.Distribution = "" }, nil},
		"old kernel": {func(r *Raw) {
			r.UserNotify, r.PidfdOpen, r.CloseRange, r.IDMap, r.Overlay, r.Btrfs = false, false, false, false, false, false
		},
			map[string]State{"seccomp user notification": Absent, "pidfd": Reduced, "close_range": Unsafe, "idmapped mounts": Absent, "overlayfs": Absent, "btrfs": Absent}},
	} {
		r := good()
		tt.spoil(&r)
		got := map[string]State{}
		for k, v := range states(r) {
			if v != base[k] {
				got[k] = v
			}
		}
		if tt.want == nil {
			tt.want = map[string]State{}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
