package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentos/internal/lib/fault"
	"agentos/internal/lib/setting"
	"agentos/internal/trusted/budget"

	"github.com/google/go-cmp/cmp"
)

func set(key, value string) setting.Set { return setting.Set{Key: key, Value: value, Flag: "--set"} }

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, src Sources) *Result {
	t.Helper()
	r, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func value(t *testing.T, r *Result, key string) Value {
	t.Helper()
	for _, v := range r.Values {
		if v.Key == key {
			v.Help = ""
			return v
		}
	}
	t.Fatalf("no value %q", key)
	return Value{}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	r := load(t, Sources{Home: "/home/u"})
	want := Config{
		StateDir: "/home/u/.local/share/agentos",
		Project:  "default",
		Model:    Model{Backend: BackendAuto, Name: "agentos-npu", Stream: true, Timeout: 240 * time.Second},
		Agent: Agent{ID: "default-agent", Limits: Limits{
			Iterations: 8, ToolCalls: 16, Elapsed: 120 * time.Second, OutputTokens: 2048, TotalTokens: 65536, Workers: 4}},
		Tools: Tools{OutputLimit: 65536, ArgumentLimit: 65536},
		Audit: Audit{Anchors: []Anchor{{Kind: "journald"}}},
	}
	if d := cmp.Diff(want, r.Config); d != "" {
		t.Error(d)
	}
	for _, v := range r.Values {
		if v.Origin != FromDefault || v.Help == "" {
			t.Errorf("%+v: want origin default and a help text", v)
		}
	}
	if len(r.Notices) > 0 || len(r.Files) > 0 {
		t.Errorf("notices %q, files %q", r.Notices, r.Files)
	}
}

// Every layer beats the weaker ones, key by key. Spec: OSA-10.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	system := write(t, filepath.Join(dir, "etc.yaml"), "agent:\n  id: from-system\nproject: p-system\nmodel:\n  name: m-system\n  timeout: 11s\n")
	user := write(t, filepath.Join(dir, ".config/agentos/config.yaml"), "# mine\nagent:\n  id: from-user\nmodel:\n  name: m-user\n")
	r := load(t, Sources{
		System: system, Home: dir,
		Env:  []string{"AGENTOS_MODEL_NAME=m-env", "AGENTOS_AGENT_MAX_ITERATIONS=3", "AGENTOS_TOOL_OUTPUT_LIMIT_BYTES="},
		Sets: []setting.Set{set("agent.limits.iterations", "4"), {Key: "agent.limits.workers", Value: "2", Flag: "--set"}, set("agent.limits.iterations", "5")},
	})
	for _, want := range []Value{
		{Key: "agent.id", Value: "from-user", Origin: FromFile, Source: user + ":3"},
		{Key: "project", Value: "p-system", Origin: FromFile, Source: system + ":3"},
		{Key: "model.timeout", Value: "11s", Origin: FromFile, Source: system + ":6"},
		{Key: "model.name", Value: "m-env", Origin: FromEnv, Source: "AGENTOS_MODEL_NAME"},
		{Key: "agent.limits.iterations", Value: "5", Origin: FromFlag, Source: "--set"},
		{Key: "tools.output_limit", Value: "65536", Origin: FromDefault},
	} {
		if d := cmp.Diff(want, value(t, r, want.Key)); d != "" {
			t.Error(d)
		}
	}
	if r.Config.Agent.ID != "from-user" || r.Config.Agent.Limits.Iterations != 5 || r.Config.Model.Name != "m-env" || r.Config.Model.Timeout != 11*time.Second {
		t.Errorf("config does not hold the shown values: %+v", r.Config)
	}
	if d := cmp.Diff([]string{system, user}, r.Files); d != "" {
		t.Error(d)
	}

	only := write(t, filepath.Join(dir, "only.yaml"), "agent: {id: from-only}\n")
	for name, src := range map[string]Sources{
		"flag":          {System: system, Home: dir, Dir: dir, Sets: []setting.Set{{Key: "config", Value: "only.yaml", Flag: "--config"}}},
		"env":           {System: system, Home: dir, Env: []string{"AGENTOS_CONFIG=" + only}},
		"flag over env": {System: system, Home: dir, Env: []string{"AGENTOS_CONFIG=/nowhere"}, Sets: []setting.Set{{Key: "config", Value: only, Flag: "--config"}}},
	} {
		r := load(t, src)
		if r.Config.Agent.ID != "from-only" || r.Config.Project != "default" || len(r.Files) != 1 {
			t.Errorf("%s: other files were read: %+v", name, r.Files)
		}
	}
	xdg := load(t, Sources{Home: "/none", Env: []string{"XDG_CONFIG_HOME=" + filepath.Join(dir, ".config"), "XDG_DATA_HOME=/data"}})
	if xdg.Config.Agent.ID != "from-user" || xdg.Config.StateDir != "/data/agentos" {
		t.Errorf("XDG directories are not used: %+v", xdg.Config)
	}
}

func TestEnvironmentOfTheSourceDocument(t *testing.T) {
	t.Parallel()
	u := func(n uint32) *uint32 { return &n }
	r := load(t, Sources{Home: "/h", Dir: "/w", Env: []string{
		"AGENTOS_STATE_DIR=state", "AGENTOS_MODEL_BACKEND=npu", "AGENTOS_NPU_SERVER_SOCKET=/run/x.sock", "AGENTOS_NPU_SERVER_MODEL=m",
		"AGENTOS_NPU_SERVER_TIMEOUT_S=30", "AGENTOS_AGENT_ID=a1", "AGENTOS_OWNER_UID=1000", "AGENTOS_AGENT_UID=1001", "AGENTOS_AGENT_GID=1002",
		"AGENTOS_AGENT_MAX_ITERATIONS=1", "AGENTOS_AGENT_MAX_TOOL_CALLS=2", "AGENTOS_AGENT_MAX_ELAPSED_S=3", "AGENTOS_AGENT_MAX_OUTPUT_TOKENS=4",
		"AGENTOS_AGENT_MAX_TOTAL_TOKENS=5", "AGENTOS_AGENT_MAX_SAFE_WORKERS=6", "AGENTOS_SERVICE_INSPECT_ALLOWLIST=ssh.service, cron.service,ssh.service",
		"AGENTOS_TOOL_OUTPUT_LIMIT_BYTES=2048", "AGENTOS_TOOL_ARGUMENT_LIMIT_BYTES=1024", "AGENTOS_AUDIT_ANCHORS=file:/a/b,journald",
	}})
	want := Config{
		StateDir: "/w/state", Project: "default",
		Model: Model{Backend: BackendSocket, Socket: "/run/x.sock", Name: "m", Stream: true, Timeout: 30 * time.Second},
		Agent: Agent{ID: "a1", OwnerUID: u(1000), UID: u(1001), GID: u(1002), Limits: Limits{1, 2, 3 * time.Second, 4, 5, 6}},
		Tools: Tools{ServiceAllowlist: []string{"ssh.service", "cron.service"}, OutputLimit: 2048, ArgumentLimit: 1024},
		Audit: Audit{Anchors: []Anchor{{Kind: "file", Path: "/a/b"}, {Kind: "journald"}}},
	}
	if d := cmp.Diff(want, r.Config); d != "" {
		t.Error(d)
	}
	if v := load(t, Sources{Home: "/h", Env: []string{"AGENTOS_MODEL_BACKEND=npu"}}); v.Config.Model.Socket != "/run/agentos/npu.sock" {
		t.Errorf("npu without a socket: %q", v.Config.Model.Socket)
	}
}

// An empty, null or absent list allows nothing, in every layer. Spec: C-10.
func TestEmptyAllowListAllowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := write(t, filepath.Join(dir, "full.yaml"), "tools:\n  service_allowlist: [ssh.service]\naudit:\n  anchors: [journald]\n")
	cfg := func(p string) setting.Set { return setting.Set{Key: "config", Value: p, Flag: "--config"} }
	for name, src := range map[string]Sources{
		"absent":       {},
		"empty env":    {Env: []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST=", "AGENTOS_AUDIT_ANCHORS="}, Sets: []setting.Set{cfg(full)}},
		"commas":       {Env: []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST= , ,", "AGENTOS_AUDIT_ANCHORS=,"}, Sets: []setting.Set{cfg(full)}},
		"empty flag":   {Sets: []setting.Set{cfg(full), set("tools.service_allowlist", ""), set("audit.anchors", "")}},
		"empty list":   {Sets: []setting.Set{cfg(write(t, filepath.Join(dir, "a.yaml"), "tools: {service_allowlist: []}\naudit: {anchors: []}\n"))}},
		"null":         {Sets: []setting.Set{cfg(write(t, filepath.Join(dir, "b.yaml"), "tools:\n  service_allowlist: null\naudit:\n  anchors: ~\n"))}},
		"nothing":      {Sets: []setting.Set{cfg(write(t, filepath.Join(dir, "c.yaml"), "tools:\n  service_allowlist:\naudit:\n  anchors:\n"))}},
		"null section": {Sets: []setting.Set{cfg(write(t, filepath.Join(dir, "d.yaml"), "tools:\naudit:\n"))}},
	} {
		src.Home = dir
		r := load(t, src)
		if n := len(r.Config.Tools.ServiceAllowlist); n != 0 {
			t.Errorf("%s: %d units allowed", name, n)
		}
		if n := len(r.Config.Audit.Anchors); n != 0 && name != "absent" && name != "null section" {
			t.Errorf("%s: %d anchors", name, n)
		}
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := write(t, filepath.Join(dir, "c.yaml"), "budgets:\n  project: {tokens: 10}\n  agent:\n    model_calls: 0\n")
	r := load(t, Sources{Home: dir, Env: []string{"AGENTOS_CONFIG=" + p}, Sets: []setting.Set{set("budgets.owner.tokens", "7"), set("budgets.project.tokens", "")}})
	want := []Budget{{"owner", budget.Tokens, 7}, {"agent", budget.ModelCall, 0}}
	if d := cmp.Diff(want, r.Config.Budgets); d != "" {
		t.Error(d)
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	r := load(t, Sources{Home: "/h", Env: []string{
		"AGENTOS_TYPO=x", "AGENTOS_OPENAI_COMPATIBLE_API_KEY=sk-secret", "PATH=/bin", "AGENTOS_MODEL_BACKEND=npu",
		"AGENTOS_MODEL_SOCKET=/a", "AGENTOS_NPU_SERVER_SOCKET=/b"}})
	want := []string{
		"AGENTOS_NPU_SERVER_SOCKET is not used: AGENTOS_MODEL_SOCKET is set too",
		"no effect in this version: AGENTOS_OPENAI_COMPATIBLE_API_KEY, AGENTOS_TYPO",
		"backend npu means socket",
	}
	if d := cmp.Diff(want, r.Notices); d != "" {
		t.Error(d)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sets []setting.Set
		env  []string
		kind fault.Kind
		msg  string
		next string
	}{
		"unknown key":        {sets: []setting.Set{set("model.bakend", "x")}, kind: fault.Usage, msg: `unknown key "model.bakend"`, next: "did you mean model.backend?"},
		"hopeless key":       {sets: []setting.Set{set("zzzzzzzzzzzzzz", "x")}, kind: fault.Usage, msg: "unknown key", next: "agentos config show"},
		"planned backend":    {env: []string{"AGENTOS_MODEL_BACKEND=openai_compatible"}, kind: fault.Unavailable, msg: "AGENTOS_MODEL_BACKEND: model.backend: backend \"openai_compatible\" is not in this version: planned", next: "rules"},
		"planned subprocess": {sets: []setting.Set{{Key: "model.backend", Value: "subprocess", Flag: "--backend"}}, kind: fault.Unavailable, msg: "--backend: model.backend", next: "rules"},
		"planned candle":     {env: []string{"AGENTOS_MODEL_BACKEND=npu_candle"}, kind: fault.Unavailable, msg: "planned", next: "socket"},
		"backend":            {env: []string{"AGENTOS_MODEL_BACKEND=gpt"}, kind: fault.Usage, msg: `backend "gpt" does not exist`, next: "rules"},
		"socket unset":       {sets: []setting.Set{set("model.backend", "socket")}, kind: fault.Usage, msg: "needs model.socket", next: "--model-socket"},
		"replay unset":       {env: []string{"AGENTOS_MODEL_BACKEND=fake"}, kind: fault.Usage, msg: "needs model.replay", next: "--replay"},
		"uid 0":              {env: []string{"AGENTOS_AGENT_UID=0"}, kind: fault.Denied, msg: "agent UID 0 is refused", next: "unprivileged"},
		"gid 0":              {sets: []setting.Set{set("agent.gid", "0")}, kind: fault.Denied, msg: "agent GID 0 is refused", next: "unprivileged"},
		"uid -1":             {env: []string{"AGENTOS_AGENT_UID=-1"}, kind: fault.Usage, msg: "out of range", next: "from 0"},
		"uid 2^32-1":         {env: []string{"AGENTOS_OWNER_UID=4294967295"}, kind: fault.Usage, msg: "out of range", next: "from 0"},
		"not a number":       {env: []string{"AGENTOS_AGENT_MAX_ITERATIONS=8x"}, kind: fault.Usage, msg: "not a whole number", next: "digits"},
		"plus":               {env: []string{"AGENTOS_AGENT_MAX_ITERATIONS=+8"}, kind: fault.Usage, msg: "not a whole number", next: "digits"},
		"overflow":           {env: []string{"AGENTOS_AGENT_MAX_ITERATIONS=99999999999999999999"}, kind: fault.Usage, msg: "not a whole number", next: "digits"},
		"zero iterations":    {env: []string{"AGENTOS_AGENT_MAX_ITERATIONS=0"}, kind: fault.Usage, msg: "out of range", next: "from 1"},
		"workers":            {env: []string{"AGENTOS_AGENT_MAX_SAFE_WORKERS=65"}, kind: fault.Usage, msg: "out of range", next: "to 64"},
		"time":               {env: []string{"AGENTOS_MODEL_TIMEOUT_S=soon"}, kind: fault.Usage, msg: "not a time", next: "90s"},
		"time range":         {env: []string{"AGENTOS_AGENT_MAX_ELAPSED_S=0"}, kind: fault.Usage, msg: "out of range", next: "1s"},
		"bool":               {env: []string{"AGENTOS_MODEL_STREAM=yes"}, kind: fault.Usage, msg: "not true or false", next: "true"},
		"agent id":           {env: []string{"AGENTOS_AGENT_ID=../x"}, kind: fault.Usage, msg: "not allowed", next: "a-z"},
		"empty agent id":     {sets: []setting.Set{set("agent.id", "")}, kind: fault.Usage, msg: "not allowed", next: "a-z"},
		"empty state dir":    {sets: []setting.Set{set("state_dir", "")}, kind: fault.Usage, msg: "relative", next: "whole path"},
		"project":            {env: []string{"AGENTOS_PROJECT=A B"}, kind: fault.Usage, msg: "not allowed", next: "a-z"},
		"unit pattern":       {env: []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST=*.service"}, kind: fault.Usage, msg: "unit name", next: "without patterns"},
		"unit without type":  {env: []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST=ssh"}, kind: fault.Usage, msg: "unit name", next: "nginx.service"},
		"unit path":          {env: []string{"AGENTOS_SERVICE_INSPECT_ALLOWLIST=/etc/x.service"}, kind: fault.Usage, msg: "unit name", next: "exact"},
		"anchor":             {env: []string{"AGENTOS_AUDIT_ANCHORS=syslog"}, kind: fault.Usage, msg: "anchor", next: "journald"},
		"relative anchor":    {env: []string{"AGENTOS_AUDIT_ANCHORS=file:x"}, kind: fault.Usage, msg: "no absolute path", next: "whole path"},
		"missing file":       {env: []string{"AGENTOS_CONFIG=/nowhere/x.yaml"}, kind: fault.NotFound, msg: "/nowhere/x.yaml", next: "--config"},
		"empty config flag":  {sets: []setting.Set{{Key: "config", Flag: "--config"}}, kind: fault.Usage, msg: "--config is empty", next: "name a file"},
		"model name":         {env: []string{"AGENTOS_MODEL_NAME=a\x1b[31m"}, kind: fault.Usage, msg: "not allowed", next: "printable"},
	} {
		_, err := Load(Sources{Home: "/h", Dir: "", Sets: tc.sets, Env: tc.env})
		switch {
		case err == nil:
			t.Errorf("%s: no error", name)
		case fault.KindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.msg) || !strings.Contains(fault.NextOf(err), tc.next):
			t.Errorf("%s: %s %q next %q", name, fault.KindOf(err), err, fault.NextOf(err))
		}
	}
	if _, err := Load(Sources{}); err == nil || !strings.Contains(err.Error(), "no home directory") {
		t.Errorf("no home: %v", err)
	}
}

// All problems are reported at once, each with its place and its next step.
func TestProblemsAreCollected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := write(t, filepath.Join(dir, "c.yaml"), "agent:\n  idd: x\nmodel:\n  stream: 1\nproject: [a]\n")
	_, err := Load(Sources{Home: dir, Sets: []setting.Set{{Key: "config", Value: p, Flag: "--config"}, set("agent.uid", "0")},
		Env: []string{"AGENTOS_MODEL_BACKEND=gpt"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"5 problems", p + ":2: unknown key \"agent.idd\"", "did you mean agent.id?", p + ":4: model.stream takes true or false",
		p + ":5: project takes text", "AGENTOS_MODEL_BACKEND: model.backend", "--set: agent.uid"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}
