//go:build linux

package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentos/internal/execution/tool"
)

func asUser() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// build makes the real binary where any user can execute it.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(openDir(t), "agentos-tool")
	cmd := exec.Command("go", "build", "-o", bin, "agentos/cmd/agentos-tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return bin
}

type outcome struct {
	code           int
	result         tool.Result
	stdout, stderr string
}

func start(t *testing.T, attr *syscall.SysProcAttr, env []string, stdin, bin string, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.SysProcAttr, cmd.Env, cmd.Dir = attr, env, "/"
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		// A program that stops reading early leaves the rest of its input unsent.
		if !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: complaint.String()}
	if o.code == 0 {
		if err := json.Unmarshal(out.Bytes(), &o.result); err != nil {
			t.Fatalf("%v: %q", err, o.stdout)
		}
		if strings.Count(o.stdout, "\n") != 1 || !strings.HasSuffix(o.stdout, "\n") {
			t.Errorf("not one line: %q", o.stdout)
		}
	}
	return o
}

func TestProcess(t *testing.T) {
	bin := build(t)
	for name, c := range map[string]struct {
		stdin, status string
		args          []string
		code          int
	}{
		"system":         {`{}`, "ok", []string{"system_inspect"}, 0},
		"accelerators":   {`{}`, "ok", []string{"npu_inspect"}, 0},
		"package":        {`{"name":"dpkg"}`, "ok", []string{"package_query"}, 0},
		"bad arguments":  {`{"name":"--eval"}`, "error", []string{"package_query"}, 0},
		"no arguments":   {``, "error", []string{"system_inspect"}, 0},
		"huge arguments": {`{"name":"` + strings.Repeat("a", 10<<20) + `"}`, "error", []string{"package_query"}, 0},
		"unknown tool":   {`{}`, "error", []string{"shell"}, 0},
		"no name":        {`{}`, "", nil, 1},
		"too many names": {`{}`, "", []string{"system_inspect", "x"}, 1},
	} {
		o := start(t, asUser(), []string{}, c.stdin, bin, c.args...)
		if o.code != c.code || o.result.Status != c.status {
			t.Errorf("%s: %+v", name, o)
		}
		if c.status == "error" && (o.result.Error == "" || o.result.Next == "") {
			t.Errorf("%s: no explanation: %+v", name, o.result)
		}
		if c.code != 0 && (o.stdout != "" || o.stderr == "") {
			t.Errorf("%s: stdout %q, stderr %q", name, o.stdout, o.stderr)
		}
	}
}

// Any root among the process's IDs ends it before a result: a set-user-ID copy
// started by an ordinary user, root itself, root's group.
func TestProcessRefusesRoot(t *testing.T) {
	bin := build(t)
	setuid := filepath.Join(openDir(t), "setuid")
	copyFile(t, bin, setuid, 0o755)
	if err := os.Chmod(setuid, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bin  string
		attr *syscall.SysProcAttr
		want string
	}{
		"root":                {bin, nil, "uid real 0"},
		"set-user-ID":         {setuid, asUser(), "effective 0"},
		"root's group":        {bin, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0}}, "gid real 0"},
		"supplementary group": {bin, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{0}}}, "groups [0]"},
	} {
		o := start(t, c.attr, []string{}, `{}`, c.bin, "system_inspect")
		if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
