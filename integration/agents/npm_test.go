//go:build linux

package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// agent is one program, and how it behaves without a network.
type agent struct {
	pkg, version string
	command      string
	profile      string
	fresh        []string // a session with a new home: arguments
	freshCode    int
	freshSays    string
	settings     string // script that makes settings in the agent's home
	offline      []string
	offlineCode  int
	offlineSays  string
	keeps        string // file in the home that is there afterwards
}

// nowhere: nothing listens there, and a refusal comes at once.
const nowhere = "http://127.0.0.1:9/v1"

func qwen() agent {
	return agent{
		pkg: "@qwen-code/qwen-code", version: "0.15.10", command: "qwen", profile: "qwen-code",
		fresh: []string{"-p", "hi"}, freshCode: 1, freshSays: "No auth type is selected",
		settings: `mkdir -p ~/.qwen && printf 'OPENAI_API_KEY=x\nOPENAI_MODEL=m\nOPENAI_BASE_URL=` + nowhere + `\n' >~/.qwen/.env &&
			echo '{"security":{"auth":{"selectedType":"openai"}},"privacy":{"usageStatisticsEnabled":false}}' >~/.qwen/settings.json`,
		offline: []string{"-p", "hi"}, offlineCode: 1, offlineSays: "Connection error",
		keeps: ".qwen/settings.json",
	}
}

// agents is what to try: one always, the others when asked, because they are
// hundreds of megabytes.
func agents() []agent {
	list := []agent{qwen()}
	if os.Getenv("AGENTOS_TEST_ALL_AGENTS") != "1" {
		return list
	}
	return append(list,
		agent{
			pkg: "@anthropic-ai/claude-code", version: "2.1.197", command: "claude", profile: "claude-code",
			fresh: []string{"-p", "hi"}, freshCode: 1, freshSays: "Not logged in", keeps: ".claude.json",
		},
		agent{
			pkg: "@openai/codex", version: "0.171.0", command: "codex", profile: "codex",
			settings: `mkdir -p ~/.codex && printf 'model_provider = "n"\n[model_providers.n]\nname = "n"\nbase_url = "` + nowhere +
				`"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n' >~/.codex/config.toml`,
			offline: []string{"exec", "hi"}, offlineCode: 1, offlineSays: "ERROR", keeps: ".codex/config.toml",
		},
		agent{
			pkg: "opencode-ai", version: "1.18.33", command: "opencode", profile: "opencode",
			offline: []string{"run", "hi"}, offlineCode: 1, offlineSays: "annot connect to API", keeps: ".local/share/opencode/opencode.db",
		},
		agent{
			pkg: "@mariozechner/pi-coding-agent", version: "0.73.1", command: "pi", profile: "pi",
			fresh: []string{"-p", "hi"}, freshCode: 1, freshSays: "API key", keeps: ".pi",
		},
		agent{
			pkg: "@google/gemini-cli", version: "0.61.0", command: "gemini", profile: "gemini-cli",
			fresh: []string{"-p", "hi"}, freshCode: 41, freshSays: "set an Auth method", keeps: ".gemini/projects.json",
		},
	)
}

// TestAgents starts each agent by its name alone: it starts, says who it is, ends
// a session by its own words, and finds its settings again.
func TestAgents(t *testing.T) {
	for _, a := range agents() {
		t.Run(a.command, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *worker) {
				w.fetch(a.pkg, a.version)
				w.run(0, []string{a.version, "profile " + a.profile}, "--", a.command, "--version")
				w.run(0, []string{a.command}, "-q", "--", a.command, "--help")
				if a.fresh != nil {
					w.run(a.freshCode, []string{a.freshSays}, append([]string{"-q", "--", a.command}, a.fresh...)...)
				}
				if a.settings != "" {
					w.run(0, nil, "-q", "--profile", a.profile, "--", "sh", "-c", a.settings)
				}
				if a.offline != nil {
					w.run(a.offlineCode, []string{a.offlineSays}, append([]string{"-q", "--", a.command}, a.offline...)...)
				}
				home := filepath.Join(w.State(), "homes", a.profile)
				if _, err := os.Stat(filepath.Join(home, a.keeps)); err != nil {
					t.Error(err)
				}
				w.owned(home)
				w.clean()
			})
		})
	}
}

// TestToolCall: the model, inside as well since there is no other network, asks
// for a file; the agent's own tool writes it; outside it is the owner's.
func TestToolCall(t *testing.T) {
	t.Parallel()
	server := filepath.Join(t.TempDir(), "loopmodel")
	buildStatic(t, "agentos/integration/agents/loopmodel", server)
	each(t, func(t *testing.T, w *worker) {
		a := qwen()
		prefix := w.fetch(a.pkg, a.version)
		model := filepath.Join(prefix, "loopmodel")
		copyFile(t, server, model)
		made := filepath.Join(w.Dir, "made.txt")
		script := filepath.Join(prefix, "script.json")
		if err := os.WriteFile(script, toolScript(t, made, "by the agent\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		const url = "http://127.0.0.1:8089/v1"
		w.run(0, []string{"It is written."}, "-q", "--profile", a.profile, "--ro", prefix, "--",
			model, "-addr", "127.0.0.1:8089", "-script", script, "--",
			"qwen", "-p", "make made.txt", "--yolo", "--auth-type", "openai", "--openai-api-key", "x", "--openai-base-url", url, "--model", "m")
		if b, err := os.ReadFile(made); err != nil || string(b) != "by the agent\n" {
			t.Errorf("made.txt: %q, %v", b, err)
		}
		w.owned(made)
		if s := w.out("git", "status", "--porcelain", "--ignored"); s != "?? made.txt\n" {
			t.Errorf("the workspace has other changes:\n%s", s)
		}
	})
}

// toolScript has the model call the agent's write_file, see that it was done, and
// say so to every later question.
func toolScript(t *testing.T, file, text string) []byte {
	t.Helper()
	args, err := json.Marshal(map[string]string{"file_path": file, "content": text})
	if err != nil {
		t.Fatal(err)
	}
	usage := map[string]int{"input_tokens": 1, "output_tokens": 1}
	turn := func(stop string, message map[string]any) map[string]any {
		message["role"] = "assistant"
		return map[string]any{"response": map[string]any{"id": "r", "message": message, "stop": stop, "usage": usage}}
	}
	done := turn("end", map[string]any{"text": "It is written."})
	done["expect"] = "c1"
	b, err := json.Marshal(map[string]any{"repeat": true, "turns": []any{
		turn("tool_calls", map[string]any{"tool_calls": []any{map[string]any{"id": "c1", "name": "write_file", "arguments": string(args)}}}),
		done,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
