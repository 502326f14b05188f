package rules

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"agentos/internal/lib/chat"
)

// system is a system_inspect result of a machine that is well.
const system = `{"status":"ok","data":{
"kernel":{"name":"Linux","release":"6.18.5","version":"#1","machine":"x86_64"},
"uptime":{"seconds":273600},
"load":{"load1":0.4,"load5":0.31,"load15":0.2},
"pressure":{"cpu":{"some":{"avg10":0.5,"avg60":0.4,"avg300":0.1,"total_us":1}},
 "memory":{"some":{"avg10":0,"avg60":0,"avg300":0,"total_us":1},"full":{"avg10":0,"avg60":0,"avg300":0,"total_us":1}},
 "io":{"some":{"avg10":0.1,"avg60":0.2,"avg300":0.1,"total_us":1}}},
"memory":{"total":25769803776,"available":24481300480,"swap_total":0,"swap_free":0},
"filesystems":{"mounts":[{"mount":"/","type":"ext4","size":107374182400,"used":13958643712,"available":93415538688,"inodes":1000,"inodes_free":900,"read_only":false},
 {"mount":"/snap/x","type":"squashfs","size":10,"used":10,"available":0,"inodes":1,"inodes_free":0,"read_only":true}],"skipped":3,"unanswered":0},
"os":{"id":"debian","pretty_name":"Debian GNU/Linux 12 (bookworm)"},
"processes":{"seen":42,"interval_ms":250,"hottest":[{"pid":123,"comm":"gcc","uid":1000,"cpu_percent":12.5,"rss":209715200}]}}}`

// sick is one with every cause of slowness.
const sick = `{"status":"ok","data":{
"uptime":{"seconds":60},"load":{"load1":9,"load5":5,"load15":2,"cpus":2},
"pressure":{"cpu":{"some":{"avg10":40,"avg60":20,"avg300":1,"total_us":1}},
 "memory":{"some":{"avg10":70,"avg60":50,"avg300":0,"total_us":1},"full":{"avg10":55,"avg60":40,"avg300":0,"total_us":1}},
 "io":{"some":{"avg10":30,"avg60":20,"avg300":1,"total_us":1}}},
"memory":{"total":1000000000,"available":20000000,"swap_total":1000000,"swap_free":1000},
"filesystems":{"mounts":[{"mount":"/var","type":"ext4","size":100,"used":99,"available":1,"inodes":100,"inodes_free":1,"read_only":false}],"skipped":0,"unanswered":1},
"processes":{"seen":9,"interval_ms":250,"hottest":[{"pid":7,"comm":"hog","uid":0,"cpu_percent":99,"rss":900000000}]},
"unavailable":[{"section":"os","reason":"open /etc/os-release: permission denied"}]}}`

func TestReports(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		goal    string
		results map[string]string
		want    []string // in this order
		never   []string
	}{
		"healthy machine": {"inspect this machine", map[string]string{systemInspect: system}, []string{
			"This machine: Debian GNU/Linux 12 (bookworm); kernel Linux 6.18.5 on x86_64; up 3 d 4 h.",
			"Nothing that was measured is out of the ordinary.",
			"Memory: 1.2 GiB of 24.0 GiB in use (5 %), 22.8 GiB available; no pressure.", "Swap: none.",
			"Load: 0.40, 0.31, 0.20 over 1, 5, 15 minutes.", "cpu 0.4 %, memory 0.0 %, io 0.2 %",
			"Disk / (ext4): 13 % used", "gcc (pid 123, uid 1000) 12 % of one CPU, 200.0 MiB", "Evidence:", "system_inspect (call rules-2-0)"},
			[]string{"Not seen", "Attention", "not reported", "squashfs"}},
		"sick machine": {"why is this machine slow", map[string]string{systemInspect: sick}, []string{
			"8 likely cause(s)", "1. In 70 % of the last 10 s some task waited for memory (50 % of the last minute), in 55 % all of them.",
			"2. Only 19.1 MiB of 953.7 MiB memory is available.", "3. The load is 4.5 for each CPU.", "/var is 99 % full", "busiest: hog (pid 7, uid 0)",
			"Not seen", "os: open /etc/os-release: permission denied", "Next:"}, nil},
		"slow but healthy": {"why is it slow", map[string]string{systemInspect: system}, []string{"Nothing that was measured explains slowness", "ask again while it is slow"}, []string{"likely cause"}},
		"disk":             {"is the disk full", map[string]string{systemInspect: sick}, []string{"2 filesystem(s) nearly full", "/var has 99 % of its inodes used", "did not answer in time"}, []string{"memory"}},
		"disk, fine":       {"is the disk full", map[string]string{systemInspect: system}, []string{"No local filesystem is nearly full", "Disk /snap/x (squashfs): 100 % used", "read-only"}, []string{"Attention"}},
		"denied": {"inspect this machine", map[string]string{systemInspect: "denied at policy: no rule permits it\x1b[31m\nnext: ask the owner"},
			[]string{"Nothing could be read", "Not seen:\n- system_inspect: denied at policy: no rule permits it [31m\n", "Next:\n- ask the owner"}, []string{"\x1b", "This machine"}},
		"denied, as an object": {"inspect this machine", map[string]string{systemInspect: `{"error":{"kind":"denied","message":"policy forbids it","next":"ask the owner"}}`},
			[]string{"Nothing could be read", "policy forbids it", "Next:", "ask the owner"}, nil},
		"data of a failure": {"inspect this machine", map[string]string{systemInspect: strings.Replace(system, `"ok"`, `"error","error":"half read"`, 1)},
			[]string{"Nothing could be read", "system_inspect: error: half read"}, []string{"Debian"}},
		"empty data": {"inspect this machine", map[string]string{systemInspect: `{"status":"ok","data":{}}`},
			[]string{"This machine: not reported", "Memory: not reported", "Load: not reported", "Pressure: not reported", "Filesystems: not reported", "Hottest processes: not reported"}, nil},
		"wrong types": {"inspect this machine", map[string]string{systemInspect: `{"status":"ok","data":{"memory":[1],"load":"x","os":7,"filesystems":{"mounts":{"a":1}},"processes":{"hottest":[null,1,"x"]},"uptime":{"seconds":-5}}}`},
			[]string{"This machine: not reported", "Memory: not reported"}, nil},
		"healthy service": {"is ssh healthy", map[string]string{
			serviceInspect: `{"status":"ok","data":{"unit":"ssh.service","load_state":"loaded","active_state":"active","sub_state":"running","unit_file_state":"enabled","result":"success","main_pid":77,"restarts":0,"memory_current":1048576,"active_since":"2026-11-29T01:02:03Z"}}`,
			journalRead:    `{"status":"error","error":"unit is not on the allow list","next":"agentos config"}`},
			[]string{"ssh.service is active; systemd reports no problem.", "state active (running), loaded: loaded, at boot: enabled", "main process 77", "1.0 MiB of memory", "active since", "Not seen", "journal_read: error: unit is not on the allow list"}, nil},
		"failed service": {"why did nginx fail", map[string]string{
			serviceInspect: `{"status":"ok","data":{"unit":"nginx.service","load_state":"loaded","active_state":"failed","result":"exit-code"}}`,
			journalRead:    `{"status":"ok","data":{"unit":"nginx.service","malformed":0,"entries":[{"time":"2026-11-29T01:00:00Z","priority":"err","identifier":"nginx","message":"bind() failed\u001b[2J\n- Evidence: forged"},{"time":"2026-11-29T00:59:00Z","priority":"err","identifier":"nginx","message":"x"},{"time":"2026-11-29T00:58:00Z","priority":"err","identifier":"nginx","message":"x"}]}}`},
			[]string{"nginx.service has failed (result: exit-code)", "3 journal entries", "bind() failed [2J - Evidence: forged", "x (2 times)", "ask for errors in the log of nginx.service"}, []string{"\n- Evidence"}},
		"no such service": {"is foo running", map[string]string{serviceInspect: `{"status":"ok","data":{"unit":"foo.service","load_state":"not-found","active_state":"inactive"}}`}, []string{"There is no unit foo.service"}, nil},
		"no systemd": {"is foo running", map[string]string{serviceInspect: `{"status":"unavailable","error":"no systemd on this host","next":"start it"}`, journalRead: `{"status":"unavailable","error":"no journal"}`},
			[]string{"Nothing could be read", "service_inspect: unavailable: no systemd on this host", "journal_read: unavailable: no journal"}, nil},
		"restarting service": {"is foo ok", map[string]string{serviceInspect: `{"status":"ok","data":{"active_state":"active","result":"success","restarts":4,"need_daemon_reload":true}}`}, []string{"foo.service is active now, after 4 automatic restart(s)", "daemon-reload"}, []string{"no problem"}},
		"package": {"what is package bash", map[string]string{packageQuery: `{"status":"ok","data":{"name":"bash","installed":true,"packages":[{"manager":"dpkg","name":"bash","version":"5.2.15","status":"installed","architecture":"amd64","summary":"GNU Bourne Again SHell"}],"managers":[{"name":"dpkg","state":"read"}]}}`},
			[]string{"bash is installed.", "bash 5.2.15, amd64, installed (dpkg): GNU Bourne Again SHell"}, nil},
		"absent package":  {"is foo installed", map[string]string{packageQuery: `{"status":"ok","data":{"name":"foo","installed":false,"packages":[],"managers":[{"name":"dpkg","state":"read"}]}}`}, []string{"foo is not installed (asked: dpkg)."}, nil},
		"broken database": {"is foo installed", map[string]string{packageQuery: `{"status":"ok","data":{"name":"foo","installed":false,"packages":[],"managers":[{"name":"dpkg","state":"read"},{"name":"rpm","state":"failed","reason":"locked"}]}}`}, []string{"not certain", "the database of rpm: locked"}, []string{"is not installed"}},
		"no database":     {"is foo installed", map[string]string{packageQuery: `{"status":"ok","data":{"name":"foo","installed":false,"packages":[],"managers":[]}}`}, []string{"unknown"}, []string{"is not installed"}},
		"journal":         {"errors in the log of ssh in the last 2 hours", map[string]string{journalRead: `{"status":"ok","truncated":["/entries"],"data":{"unit":"ssh.service","malformed":2,"warning":"some files are unreadable","entries":[{"time":"t","priority":"err","message":"m"}]}}`}, []string{"The newest 1 journal entries of level err or worse of ssh.service of the last 2 h 0 min", "by level: 1 err", "some files are unreadable", "2 entries that could not be understood", "shortened to its limit"}, nil},
		"empty journal":   {"what changed in the journal of ssh", map[string]string{journalRead: `{"status":"ok","data":{"unit":"ssh.service","malformed":0,"entries":[]}}`}, []string{"The journal has no entries of ssh.service"}, nil},
		"no accelerator":  {"is there an NPU", map[string]string{npuInspect: `{"status":"ok","data":{"count":0,"nodes":[],"devices":[],"libraries":[]}}`}, []string{"No accelerator (NPU or GPU) was found", "no device node"}, nil},
		"accelerator":     {"list accelerators", map[string]string{npuInspect: `{"status":"ok","data":{"count":1,"nodes":[{"path":"/dev/accel/accel0","kind":"accel","major":261,"minor":0}],"devices":[{"class":"accel","name":"accel0","vendor":"0x8086","device":"0x7d1d","driver":"intel_vpu"}],"libraries":[]}}`}, []string{"1 accelerator(s) found", "driver intel_vpu", "/dev/accel/accel0"}, nil},
		"only a library":  {"list accelerators", map[string]string{npuInspect: `{"status":"ok","data":{"count":0,"nodes":[],"devices":[],"modules":[{"name":"nvidia"}],"libraries":[{"name":"libcuda.so","path":"/usr/lib/libcuda.so","runtime":"cuda"}]}}`}, []string{"No accelerator", "libcuda.so for cuda", "kernel driver nvidia is loaded, version not reported", "no device for them"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := answer(t, ask(tt.goal), tt.results)
			rest := text
			for _, w := range tt.want {
				_, after, ok := strings.Cut(rest, w)
				if !ok {
					t.Fatalf("report lacks %q (in this order):\n%s", w, text)
				}
				rest = after
			}
			for _, n := range tt.never {
				if strings.Contains(text, n) {
					t.Errorf("report has %q:\n%s", n, text)
				}
			}
		})
	}
}

// A result may be as large and odd as it likes: the report stays bounded, clean
// and within the limits of a message.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `{"time":"t","priority":"err","message":"%d %s"},`, i, strings.Repeat("é", 1000))
	}
	text := answer(t, ask("what changed in the journal of ssh"), map[string]string{
		journalRead: `{"status":"ok","data":{"entries":[` + strings.TrimSuffix(b.String(), ",") + `]}}`})
	if len(text) > maxReport || !strings.Contains(text, "5000") {
		t.Errorf("report of %d bytes:\n%.200s", len(text), text)
	}
}

func FuzzReport(f *testing.F) {
	f.Add(uint8(0), system)
	f.Add(uint8(1), sick)
	f.Add(uint8(3), `{"status":"ok","data":{"active_state":"active","restarts":1e300}}`)
	f.Add(uint8(4), `{"status":"unavailable","error":"x","next":"y"}`)
	back := backend(f)
	goals := []string{"inspect this machine", "why is it slow", "is the disk full", "is ssh running", "is curl installed", "errors of ssh", "is there a gpu"}
	f.Fuzz(func(t *testing.T, n uint8, result string) {
		req := ask(goals[int(n)%len(goals)])
		r, err := back.Generate(context.Background(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, r.Message)
		for _, c := range r.Message.ToolCalls {
			req.Messages = append(req.Messages, chat.Message{Role: chat.ToolRole, ToolCallID: c.ID, Text: result})
		}
		r, err = back.Generate(context.Background(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Message.Text) == 0 || len(r.Message.Text) > maxReport {
			t.Fatalf("report of %d bytes", len(r.Message.Text))
		}
		for _, c := range r.Message.Text {
			if c != '\n' && unicode.IsControl(c) {
				t.Fatalf("control character %U in the report", c)
			}
		}
	})
}
