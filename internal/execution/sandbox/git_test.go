package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/internal/execution/profile"

	"github.com/google/go-cmp/cmp"
)

// worktreeOf adds a worktree at /home/u/w of the repository at /home/u/main.
func worktreeOf() []string {
	own := "/home/u/main/.git/worktrees/w/"
	return append(repo("/home/u/main"), "/home/u/w/.git", "gitdir: /home/u/main/.git/worktrees/w\n", own+"commondir", "../..\n", own+"gitdir", "/home/u/w/.git\n", own+"HEAD", "ref: x", own+"index", "f")
}

func with(list []string, more ...string) []string { return append(list, more...) }

// Spec: C-02.
func TestRepositories(t *testing.T) {
	t.Parallel()
	const g, m = "/home/u/w/.git", "/home/u/main/.git"
	rw := func(r *Request) { r.RW = []string{"/home/u/w"} }
	for name, tc := range map[string]struct {
		host   []string
		change func(*Request)
		see    map[string]string
		watch  []string
		notice string
	}{
		"plain": {
			repo("/home/u/w"), rw,
			map[string]string{g + "/index": "w", g + "/objects/aa/b": "w", g + "/refs/heads/main": "w", g + "/config": "r", g + "/hooks": "r"},
			[]string{g + "/commondir", g + "/config.worktree", "/home/u/w/HEAD"}, "",
		},
		"plain with more": {
			with(repo("/home/u/w"), g+"/config.worktree", "x", g+"/modules/a/config", "x", g+"/worktrees/o/commondir", "x"), rw,
			map[string]string{g + "/config.worktree": "r", g + "/modules/a/config": "r", g + "/worktrees/o/commondir": "r", g + "/index": "w"},
			[]string{g + "/commondir", "/home/u/w/HEAD"}, "",
		},
		"profile reads": {
			repo("/home/u/w"), func(r *Request) { rw(r); r.Profile.Git = profile.Read },
			map[string]string{g + "/index": "r", g + "/config": "r", "/home/u/w/a.txt": "w"}, nil, "",
		},
		"workspace is read only": {repo("/home/u/w"), func(*Request) {}, map[string]string{g + "/index": "r", g + "/config": "r"}, nil, ""},
		"no hooks": {
			with(repo("/home/u/w"), g+"/hooks", ""), rw,
			map[string]string{g + "/index": "r", "/home/u/w/a.txt": "w"}, nil, "mkdir -p /home/u/w/.git/hooks",
		},
		"hooks are a link": {with(repo("/home/u/w"), g+"/hooks", "-> /home/u/w/sub"), rw, map[string]string{g + "/index": "r"}, nil, "missing hooks"},
		"hooks elsewhere": {
			with(repo("/home/u/w"), g+"/config", "[Core]\n\thooksPath = sub # husky\n"), rw,
			map[string]string{"/home/u/w/sub/b.txt": "r", "/home/u/w/a.txt": "w"},
			[]string{g + "/commondir", g + "/config.worktree", "/home/u/w/HEAD"}, "",
		},
		"hooks elsewhere, absent": {
			with(repo("/home/u/w"), g+"/config", "[core]\nhookspath=\".husky/_\"\n"), rw,
			map[string]string{g + "/index": "w"},
			[]string{g + "/commondir", g + "/config.worktree", "/home/u/w/HEAD", "/home/u/w/.husky/_"}, "sends Git to /home/u/w/.husky/_",
		},
		"included file": {
			with(repo("/home/u/w"), g+"/config", "[include]\n\tpath = ../sub/b.txt\n"), rw,
			map[string]string{"/home/u/w/sub/b.txt": "r", "/home/u/w/sub/c.txt": "w"},
			[]string{g + "/commondir", g + "/config.worktree", "/home/u/w/HEAD"}, "",
		},
		"worktree": {
			worktreeOf(), rw,
			map[string]string{
				m + "/objects/aa/b": "w", m + "/refs/heads/main": "w", m + "/logs/HEAD": "w", m + "/worktrees/w/index": "w",
				m + "/config": "r", m + "/hooks": "r", m + "/commondir": "r", m + "/worktrees/w/commondir": "r", m + "/worktrees/w/gitdir": "r", g: "r", "/home/u/main/x": "",
			},
			[]string{m + "/worktrees/w/config.worktree"}, "",
		},
		"worktree to read": {worktreeOf(), func(*Request) {}, map[string]string{m + "/objects/aa/b": "r", m + "/worktrees/w/index": "r", m + "/config": "r"}, nil, ""},
		"worktree and its repository": {
			worktreeOf(), func(r *Request) { r.RW = []string{"/home/u/w", "/home/u/main"} },
			map[string]string{m + "/index": "w", m + "/worktrees/w/index": "w", m + "/worktrees/w/commondir": "r", m + "/config": "r", m + "/hooks": "r"},
			[]string{m + "/commondir", m + "/config.worktree", "/home/u/main/HEAD", m + "/worktrees/w/config.worktree"}, "",
		},
		// The .git file is the workspace's and may lie.
		"lie: a folder of keys": {
			[]string{"/home/u/w/.git", "gitdir: /home/u/.ssh\n"}, rw, map[string]string{"/home/u/.ssh/id": "", g: "r"}, nil, "nothing of a repository is granted",
		},
		"lie: somebody's worktree": {
			with(worktreeOf(), m+"/worktrees/w/gitdir", "/home/u/elsewhere/.git\n", "/home/u/elsewhere/.git", "f"), rw,
			map[string]string{m + "/config": "", m + "/objects/aa/b": ""}, nil, "does not know this worktree",
		},
		"lie: another common folder": {
			with(worktreeOf(), m+"/worktrees/w/commondir", "/home/u/.ssh\n"), rw, map[string]string{"/home/u/.ssh/id": ""}, nil, "another shape",
		},
		"lie: made up in the workspace": {
			[]string{"/home/u/w/.git", "gitdir: sub\n", "/home/u/w/sub/commondir", "/home/u/.ssh\n", "/home/u/w/sub/gitdir", "/home/u/w/.git\n"}, rw,
			map[string]string{"/home/u/.ssh/id": ""}, nil, "another shape",
		},
		"not a worktree's": {[]string{"/home/u/w/.git", "hello"}, rw, map[string]string{g: "r"}, nil, "no worktree's file"},
		"a link":           {[]string{"/home/u/w/.git", "-> /home/u/main/.git"}, rw, map[string]string{m: ""}, nil, "is a link"},
		"a part of one":    {repo("/home/u/w"), func(r *Request) { r.Dir = "/home/u/w/sub" }, map[string]string{g: ""}, nil, "start in its top folder"},
		"inside": {
			repo("/home/u/w/sub"), rw, map[string]string{"/home/u/w/sub/.git/config": "w"}, nil, "keep writable hooks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mustBuild(t, ask(t, tc.change), debian(tc.host...))
			for p, want := range tc.see {
				if how := sees(got.Plan, p); how != want {
					t.Errorf("%s: %q, want %q", p, how, want)
				}
			}
			if d := cmp.Diff(tc.watch, got.Watch); d != "" {
				t.Errorf("watch: %s", d)
			}
			if tc.notice != "" && !noticed(got, tc.notice) {
				t.Errorf("no notice with %q: %q", tc.notice, got.Notices)
			}
			if tc.notice == "" && len(got.Notices) > 2 {
				t.Errorf("notices: %q", got.Notices)
			}
		})
	}
}

// TestProtectedPartsArePlaces: what is protected in a writable tree is a mount
// point, and so is each folder above it up to the tree, or the agent would
// rename one away.
func TestProtectedPartsArePlaces(t *testing.T) {
	t.Parallel()
	h := debian(with(repo("/home/u/w"), "/home/u/w/.git/config", "[core]\nhooksPath = x/y/hooks\n", "/home/u/w/x/y/hooks/pre-commit", "exec")...)
	got := mustBuild(t, ask(t, func(r *Request) { r.RW = []string{"/home/u/w"} }), h)
	for _, p := range []string{"/home/u/w/.git", "/home/u/w/.git/hooks", "/home/u/w/.git/config", "/home/u/w/x", "/home/u/w/x/y", "/home/u/w/x/y/hooks"} {
		if m := at(got.Plan, p); m.Kind != Bind || m.Source != p {
			t.Errorf("%s is no mount point: %+v", p, m)
		}
	}
}

// TestRealGit builds plans over repositories that git itself made.
func TestRealGit(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	main, wt := filepath.Join(dir, "main"), filepath.Join(dir, "wt")
	for _, args := range [][]string{
		{"init", "-q", main},
		{"-C", main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"},
		{"-C", main, "worktree", "add", "-q", wt},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	for _, tc := range []struct{ dir, write, read string }{
		{main, "/.git/index", "/.git/config"}, {wt, "/.git/worktrees/wt/index", "/.git/hooks"},
	} {
		got := mustBuild(t, ask(t, func(r *Request) { r.Dir, r.RW, r.Owner.Home = tc.dir, []string{tc.dir}, "/nonexistent" }), Local{})
		if w, r := sees(got.Plan, main+tc.write), sees(got.Plan, main+tc.read); w != "w" || r != "r" {
			t.Errorf("%s: %s is %q, %s is %q; %q", tc.dir, tc.write, w, tc.read, r, got.Notices)
		}
	}
}

func TestPointsTo(t *testing.T) {
	t.Parallel()
	text := "[core]\n hooksPath = a b ; c\n[Include]\npath=\"x#y\"\n[includeIf \"gitdir:~/w\"] path = z\n[user]\npath = no\n[core]\nhookspath\n[core\nhooksPath = still core\n"
	want := []pointer{{"a b", false}, {"x#y", true}, {"z", true}, {"still core", false}}
	if d := cmp.Diff(want, pointsTo(text), cmp.AllowUnexported(pointer{})); d != "" {
		t.Error(d)
	}
}

// FuzzGit: whatever a workspace says about its repository, nothing outside it
// is granted but a repository that names the workspace.
func FuzzGit(f *testing.F) {
	f.Add("gitdir: /home/u/main/.git/worktrees/w\n", "../..\n", "/home/u/w/.git\n", "[core]\nhooksPath=../../.ssh\n")
	f.Add("gitdir: ../.ssh", "/etc", "x", "[include]\npath=/home/u/.bashrc")
	f.Fuzz(func(t *testing.T, file, common, back, config string) {
		if slices.ContainsFunc([]string{file, common, back, config}, func(s string) bool {
			return strings.HasPrefix(s, "-> ") || slices.Contains([]string{"", "dir", "exec", "fifo", "socket", "device"}, s)
		}) {
			return // words of the fake
		}
		own := "/home/u/main/.git/worktrees/w/"
		h := debian(append(worktreeOf(), "/home/u/w/.git", file, own+"commondir", common, own+"gitdir", back, "/home/u/main/.git/config", config)...)
		got, err := Build(ask(t, func(r *Request) { r.RW = []string{"/home/u/w"} }), h)
		if err != nil {
			return
		}
		for _, s := range secrets {
			if how := sees(got.Plan, s); how != "" {
				t.Fatalf("%s is visible (%s)", s, how)
			}
		}
		for _, s := range []string{"/home/u/main/.git/hooks", "/home/u/main/.git/config"} {
			if sees(got.Plan, s) == "w" {
				t.Fatalf("%s is writable", s)
			}
		}
	})
}
