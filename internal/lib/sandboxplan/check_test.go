package sandboxplan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentos/internal/lib/fault"
)

// sound is a small plan that passes.
func sound() Plan {
	return Plan{
		Version: Version, Run: "01J-run", Strength: Full, Hostname: "agentos",
		Command: []string{"true"}, Env: []string{"PATH=/usr/bin", "HOME=/home/agent"}, Dir: "/srv/work",
		Identity: Identity{UID: 900, GID: 900, OwnerUID: 1000, OwnerGID: 1000, User: "agent", Home: "/home/agent"},
		Mounts: []Mount{
			{Kind: Link, Source: "usr/bin", Target: "/bin"},
			{Kind: Dev, Target: "/dev", Write: true},
			{Kind: Folder, Target: "/etc"},
			{Kind: Bind, Source: "/etc/ssl", Target: "/etc/ssl"},
			{Kind: Folder, Target: "/home"},
			{Kind: Bind, Source: "/state/home", Target: "/home/agent", Write: true, Owned: true},
			{Kind: Proc, Target: "/proc"},
			{Kind: Folder, Target: "/srv"},
			{Kind: Bind, Source: "/srv/work", Target: "/srv/work", Write: true, Owned: true},
			{Kind: Bind, Source: "/srv/work/.git", Target: "/srv/work/.git", Write: true, Owned: true},
			{Kind: Bind, Source: "/srv/work/.git/hooks", Target: "/srv/work/.git/hooks", Owned: true},
			{Kind: Tmpfs, Target: "/tmp", SizeBytes: 1 << 20, Write: true},
			{Kind: Bind, Source: "/usr", Target: "/usr", Exec: true},
		},
		Files: []File{{Path: "/etc/passwd", Data: "x"}},
	}
}

func TestSoundPlanPasses(t *testing.T) {
	t.Parallel()
	p := sound()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	add := func(m Mount) func(*Plan) { return func(p *Plan) { p.Mounts = append(p.Mounts, m) } }
	bind := func(src, dst string, write bool) func(*Plan) {
		return add(Mount{Kind: Bind, Source: src, Target: dst, Write: write})
	}
	for name, tc := range map[string]struct {
		change func(*Plan)
		want   string
	}{
		"version":                {func(p *Plan) { p.Version = 2 }, "version 2"},
		"run":                    {func(p *Plan) { p.Run = "../x" }, "no identifier"},
		"strength absent":        {func(p *Plan) { p.Strength = "" }, "unknown strength"},
		"strength invented":      {func(p *Plan) { p.Strength = "none" }, "unknown strength"},
		"hostname control":       {func(p *Plan) { p.Hostname = "a\x1b]0;x\a" }, "host name"},
		"hostname dots":          {func(p *Plan) { p.Hostname = "a.b" }, "host name"},
		"hostname long":          {func(p *Plan) { p.Hostname = strings.Repeat("a", 64) }, "host name"},
		"no command":             {func(p *Plan) { p.Command = nil }, "no command"},
		"NUL in command":         {func(p *Plan) { p.Command = []string{"a", "b\x00c"} }, "NUL"},
		"many arguments":         {func(p *Plan) { p.Command = make([]string, MaxArgs+1); p.Command[0] = "x" }, "arguments"},
		"large":                  {func(p *Plan) { p.Command = append(p.Command, strings.Repeat("x", MaxText)) }, "bytes, at most"},
		"env without name":       {func(p *Plan) { p.Env = []string{"=x"} }, "no valid name"},
		"env without value":      {func(p *Plan) { p.Env = []string{"X"} }, "no valid name"},
		"env twice":              {func(p *Plan) { p.Env = []string{"A=1", "A=2"} }, "twice"},
		"env secret":             {func(p *Plan) { p.Env = []string{"OPENAI_API_KEY=sk"} }, "like a secret"},
		"env NUL":                {func(p *Plan) { p.Env = []string{"A=\x00"} }, "NUL"},
		"UID 0":                  {func(p *Plan) { p.Identity.UID = 0 }, "UID 0"},
		"GID 0":                  {func(p *Plan) { p.Identity.GID = 0 }, "GID 0"},
		"nobody":                 {func(p *Plan) { p.Identity.UID = 65534 }, "UID 65534"},
		"no owner":               {func(p *Plan) { p.Identity.OwnerUID = ^uint32(0) }, "no owner"},
		"root's name":            {func(p *Plan) { p.Identity.User = "root" }, "user name"},
		"name breaks passwd":     {func(p *Plan) { p.Identity.User = "a:0:0" }, "user name"},
		"full as owner":          {func(p *Plan) { p.Identity.UID = 1000 }, "can't be its owner"},
		"rootless as another":    {func(p *Plan) { p.Strength = Rootless }, "runs as its owner"},
		"negative limit":         {func(p *Plan) { p.Limits.PIDs = -1 }, "limit pids"},
		"memory too small":       {func(p *Plan) { p.Limits.MemoryBytes = 1 }, "limit memory"},
		"huge limit":             {func(p *Plan) { p.Limits.FileBytes = 1 << 60 }, "limit file"},
		"dir absent":             {func(p *Plan) { p.Dir = "/opt/x" }, "not in the sandbox"},
		"dir relative":           {func(p *Plan) { p.Dir = "x" }, "not absolute"},
		"home absent":            {func(p *Plan) { p.Identity.Home = "/home/other" }, "not in the sandbox"},
		"dir is proc":            {func(p *Plan) { p.Dir = "/proc" }, "not in the sandbox"},
		"root mounted":           {bind("/srv/x", "/", false), "root itself"},
		"whole host":             {bind("/", "/host", false), "whole host"},
		"dotdot source":          {bind("/srv/../etc", "/x", false), "not clean"},
		"dotdot target":          {bind("/srv/x", "/srv/../x", false), "not clean"},
		"slash at the end":       {bind("/srv/x/", "/x", false), "not clean"},
		"relative source":        {bind("srv", "/x", false), "not absolute"},
		"no source":              {bind("", "/x", false), "not absolute"},
		"control in target":      {bind("/srv/x", "/x\x1b[2J", false), "control"},
		"invisible in target":    {bind("/srv/x", "/x\u202ey", false), "control"},
		"not UTF-8":              {bind("/srv/x", "/x\xff", false), "UTF-8"},
		"long name":              {bind("/srv/x", "/"+strings.Repeat("x", 256), false), "too long"},
		"proc of the host":       {bind("/proc/1", "/x", false), "can't be shown"},
		"sys of the host":        {bind("/sys", "/sys", false), "can't be shown"},
		"a device":               {bind("/dev/sda", "/x", false), "can't be shown"},
		"services' sockets":      {bind("/run/docker.sock", "/x", false), "can't be shown"},
		"var run":                {bind("/var/run/x", "/x", false), "can't be shown"},
		"over proc":              {bind("/srv/x", "/proc/sys", false), "nothing can be shown"},
		"writable usr":           {bind("/usr/lib/x", "/x", true), "belongs to the system"},
		"writable etc":           {bind("/etc/cron.d", "/x", true), "belongs to the system"},
		"writable var":           {bind("/var", "/x", true), "belongs to the system"},
		"writable homes":         {bind("/home", "/x", true), "belongs to the system"},
		"writable at usr":        {bind("/srv/x", "/usr/lib/x", true), "can't be writable in"},
		"writable at etc":        {bind("/srv/x", "/etc/x", true), "can't be writable in"},
		"twice":                  {bind("/srv/other", "/tmp", false), "mounted twice"},
		"no parent":              {bind("/srv/x", "/a/b", false), "no parent"},
		"no parent in a folder":  {bind("/srv/x", "/srv/a/b", false), "no parent"},
		"below proc":             {add(Mount{Kind: Folder, Target: "/proc/x"}), "can't stand inside the proc"},
		"below a link":           {add(Mount{Kind: Folder, Target: "/bin/x"}), "can't stand inside the link"},
		"tmpfs as a mask":        {add(Mount{Kind: Tmpfs, Target: "/srv/work/secret", SizeBytes: 4096}), "would cover"},
		"folder as a mask":       {add(Mount{Kind: Folder, Target: "/srv/work/secret"}), "would cover"},
		"bind as a mask":         {bind("/srv/empty", "/srv/work/secret", false), "would cover"},
		"mask in a read-only":    {add(Mount{Kind: Folder, Target: "/usr/share"}), "would cover"},
		"optional inside":        {add(Mount{Kind: Bind, Source: "/srv/work/x", Target: "/srv/work/x", Optional: true}), "can't be optional"},
		"same place elsewhere":   {bind("/srv/work", "/again", false), "with other rights"},
		"protected elsewhere":    {bind("/srv/work/.git/hooks", "/hooks", true), "with other rights"},
		"parent elsewhere":       {bind("/srv", "/all", false), "with other rights"},
		"proc elsewhere":         {add(Mount{Kind: Proc, Target: "/p"}), "proc at"},
		"dev elsewhere":          {add(Mount{Kind: Dev, Target: "/d"}), "dev at"},
		"tmpfs without size":     {add(Mount{Kind: Tmpfs, Target: "/t"}), "tmpfs"},
		"tmpfs over usr":         {add(Mount{Kind: Tmpfs, Target: "/lib64", SizeBytes: 4096}), "can't stand"},
		"tmpfs with source":      {add(Mount{Kind: Tmpfs, Target: "/t", Source: "/srv", SizeBytes: 4096}), "has a source"},
		"folder with write":      {add(Mount{Kind: Folder, Target: "/t", Write: true}), "holds children only"},
		"size of a bind":         {add(Mount{Kind: Bind, Source: "/srv/x", Target: "/t", SizeBytes: 1}), "only a tmpfs"},
		"owned link":             {add(Mount{Kind: Link, Source: "usr", Target: "/t", Owned: true}), "are for binds"},
		"link to nothing":        {add(Mount{Kind: Link, Target: "/t"}), "points to"},
		"link to itself":         {add(Mount{Kind: Link, Source: "/t/x", Target: "/t"}), "points to itself"},
		"kind":                   {add(Mount{Kind: "overlay", Target: "/t"}), "unknown kind"},
		"no kind":                {add(Mount{Target: "/t"}), "unknown kind"},
		"many":                   {func(p *Plan) { p.Mounts = make([]Mount, MaxMounts+1) }, "mounts, at most"},
		"file in no folder":      {func(p *Plan) { p.Files[0].Path = "/usr/passwd" }, "in no folder"},
		"file in the workspace":  {func(p *Plan) { p.Files[0].Path = "/srv/work/x" }, "in no folder"},
		"file twice":             {func(p *Plan) { p.Files = append(p.Files, p.Files[0]) }, "there twice"},
		"file over a mount":      {func(p *Plan) { p.Files[0].Path = "/etc/ssl" }, "there twice"},
		"large file":             {func(p *Plan) { p.Files[0].Data = strings.Repeat("x", MaxFileData+1) }, "bytes, at most"},
		"many files":             {func(p *Plan) { p.Files = make([]File, MaxFiles+1) }, "files, at most"},
		"landlock with files":    {landlock(func(p *Plan) { p.Files = []File{{Path: "/etc/x"}} }), "can't make"},
		"landlock with tmpfs":    {landlock(add(Mount{Kind: Tmpfs, Target: "/t", SizeBytes: 4096})), "can't show tmpfs"},
		"landlock moved":         {landlock(bind("/srv/x", "/x", false)), "can't show bind"},
		"landlock narrows":       {landlock(bind("/srv/work/.git", "/srv/work/.git", false)), "can't narrow"},
		"landlock narrows exec":  {landlock(add(Mount{Kind: Bind, Source: "/usr/x", Target: "/usr/x"})), "can't narrow"},
		"landlock as an own UID": {func(p *Plan) { p.Strength = LandlockOnly }, "runs as its owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sound()
			tc.change(&p)
			err := p.Check()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			if fault.NextOf(err) == "" {
				t.Errorf("%v has no next step", err)
			}
			if strings.ContainsAny(err.Error(), "\x1b\x07\n") || strings.Contains(err.Error(), "sk") && name == "env secret" {
				t.Errorf("%q shows what it must not", err)
			}
		})
	}
}

// landlock makes the sound plan one of landlock-only and then changes it.
func landlock(change func(*Plan)) func(*Plan) {
	return func(p *Plan) {
		p.Strength, p.Files = LandlockOnly, nil
		p.Identity.UID, p.Identity.GID, p.Identity.Home = 1000, 1000, "/srv/home"
		p.Mounts = []Mount{
			{Kind: Dev, Target: "/dev"},
			{Kind: Bind, Source: "/srv", Target: "/srv"},
			{Kind: Bind, Source: "/srv/work", Target: "/srv/work", Write: true},
			{Kind: Bind, Source: "/usr", Target: "/usr", Exec: true},
		}
		change(p)
	}
}

func TestLandlockPlanPasses(t *testing.T) {
	t.Parallel()
	p := sound()
	landlock(func(*Plan) {})(&p)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestSecretName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"OPENAI_API_KEY": true, "openai_api_key": true, "GITHUB_TOKEN": true, "GH_PAT": true, "AWS_SECRET_ACCESS_KEY": true,
		"AWS_SESSION_TOKEN": true, "DB_PASSWORD": true, "PGPASSWORD": true, "MYSQL_PWD_HASH": true, "APIKEY": true, "KEY": true,
		"TOKEN_2": true, "SSH_AUTH_SOCK": true, "NPM_CONFIG__AUTH": true, "GOOGLE_APPLICATION_CREDENTIALS": true, "SESSION_COOKIE": true,
		"PATH": false, "TERM": false, "COMPAT": false, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": false, "KEYBOARD": false, "AUTHOR": false, "LC_ALL": false, "BYPASS": false,
	} {
		if got := SecretName(name); got != want {
			t.Errorf("SecretName(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Limits{
		"pids=512": {PIDs: 512}, "memory=4G": {MemoryBytes: 4 << 30}, "memory=512MiB": {MemoryBytes: 512 << 20}, "cpu=200%": {CPUPercent: 200},
		"tmp=1g": {TmpBytes: 1 << 30}, "files=1024": {OpenFiles: 1024}, "file=10G": {FileBytes: 10 << 30}, "file=10485760": {FileBytes: 10 << 20},
		"pids=none": {}, "memory=1T": {MemoryBytes: 1 << 40}, "tmp=4KB": {TmpBytes: 4096},
	} {
		name, value, _ := strings.Cut(in, "=")
		var got Limits
		if err := got.Set(name, value); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"pids=", "pids=0", "pids=-1", "pids=1", "pids=1.5", "pids=+5", "pids= 5", "pids=5G", "pids=99999999999999999999", "pids=0x10",
		"memory=0", "memory=4X", "memory=G", "memory=4GG", "memory=1M", "memory=9999999T", "memory=16777217T", "file=17179869185G", "memory=9223372036854775807T", "memory=4 G", "memory=4I",
		"cpu=200", "cpu=%", "cpu=-5%", "cpu=0%", "cpu=1.5%", "disk=1G", "=1", "PIDS=5", "tmp=1", "files=1",
	} {
		name, value, _ := strings.Cut(in, "=")
		got := Limits{PIDs: 7}
		err := got.Set(name, value)
		if err == nil || fault.NextOf(err) == "" || got != (Limits{PIDs: 7}) {
			t.Errorf("%s: %+v, %v, next %q", in, got, err, fault.NextOf(err))
		}
	}
}

// FuzzLimits: what Set takes, Size and the plain number write back.
func FuzzLimits(f *testing.F) {
	for _, s := range []string{"memory=4G", "cpu=150%", "pids=12", "file=1MiB", "tmp=18446744073709551616", "files=none"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		name, value, _ := strings.Cut(in, "=")
		var l Limits
		if l.Set(name, value) != nil {
			if l != (Limits{}) {
				t.Fatalf("%q failed and set %+v", in, l)
			}
			return
		}
		if err := l.check(); err != nil {
			t.Fatalf("%q set what Check refuses: %v", in, err)
		}
		n := *l.slot(name)
		text := map[string]string{"memory": Size(n), "tmp": Size(n), "file": Size(n), "cpu": fmt.Sprintf("%d%%", n)}[name]
		if text == "" {
			text = fmt.Sprint(n)
		}
		var again Limits
		if n != 0 && (again.Set(name, text) != nil || again != l) {
			t.Fatalf("%q is %+v, written %q, read %+v", in, l, text, again)
		}
	})
}

// FuzzCheck: whatever bytes make a plan, one that passes holds the invariants
// that the launcher relies on.
func FuzzCheck(f *testing.F) {
	p := sound()
	good, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	landlock(func(*Plan) {})(&p)
	if good, err = json.Marshal(p); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Plan
		if json.Unmarshal(data, &p) != nil || p.Check() != nil {
			return
		}
		if p.Identity.UID == 0 || p.Identity.GID == 0 {
			t.Fatal("root inside")
		}
		for i, m := range p.Mounts {
			if m.Kind == Bind && (m.Source == "/" || Closed(m.Source) || m.Write && System(m.Source)) {
				t.Fatalf("mount %+v", m)
			}
			for _, o := range p.Mounts[:i] {
				if o.Target == m.Target || Below(o.Target, m.Target) {
					t.Fatalf("%q comes before its parent %q", o.Target, m.Target)
				}
				if o.Kind == Bind && Below(m.Target, o.Target) && m.Kind != Bind {
					t.Fatalf("%q masks a part of %q", m.Target, o.Target)
				}
			}
		}
	})
}
