package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/apierr"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fakeRun is a RunService whose programs are the cases of behave.
type fakeRun struct {
	agentosv1connect.UnimplementedRunServiceHandler
}

type runStream = connect.BidiStream[agentosv1.RunInput, agentosv1.RunOutput]

// hostileOutput holds what must not reach a terminal between what may.
const hostileOutput = "ok\x1b[1mbold\x1b[0m\x1b]52;c;ZXZpbA==\x07\x1b[21t\x1b[6n\x9b31m\x1bPtmux;\x1b\x1b]0;x\x07\x1b\\\x05\x1b[?1049h\x1b]0;root\x07end\r\n"

// program is one fake program.
type program struct {
	st   *runStream
	note func(string, ...any)
}

func (p program) out(s string) {
	_ = p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stdout{Stdout: []byte(s)}})
}

func (p program) exit(x *agentosv1.RunExited) error {
	if x.GetReason() == "" {
		x.Reason = "completed"
	}
	return p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Exited{Exited: x}})
}

func (fakeRun) Start(ctx context.Context, st *runStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	spec := first.GetSpec()
	if spec.GetCommand()[0] == "refused" {
		return apierr.ToConnect(fault.New(fault.Unavailable, "agentos run --strength landlock-only -- …", "make sandbox: user namespaces are forbidden here"))
	}
	for name, err := range map[string]error{
		"unfound":   fault.New(fault.NotFound, "check the spelling", "find program %q", "unfound"),
		"noexec":    fault.New(fault.Denied, "chmod +x it", "command: run %q: permission denied", "noexec"),
		"noprofile": fault.New(fault.NotFound, "agentos profile list", "find profile %q", "x"),
	} {
		if spec.GetCommand()[0] == name {
			return apierr.ToConnect(err)
		}
	}
	if spec.GetCommand()[0] == "slow" {
		<-ctx.Done()
		note("gave up")
		return ctx.Err()
	}
	started := &agentosv1.RunStarted{Run: runID, Agent: "generic", Profile: "generic", Strength: "rootless", Layers: []string{"namespaces", "Landlock 7", "seccomp"},
		Uid: 1000, Missing: []string{"memory"}, Notices: []string{"--rw writes through\x1b[2J"}}
	if err := st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Started{Started: started}}); err != nil || spec.GetDetach() {
		return err
	}
	return program{st, note}.behave(spec)
}

func (p program) behave(spec *agentosv1.RunSpec) error {
	argv := spec.GetCommand()
	switch argv[0] {
	case "spec":
		doc, _ := json.Marshal(spec)
		p.out(string(doc) + "\n")
		return p.exit(&agentosv1.RunExited{})
	case "exit":
		n, _ := strconv.Atoi(argv[1])
		return p.exit(&agentosv1.RunExited{Code: int32(n)})
	case "die":
		n, _ := strconv.Atoi(argv[1])
		return p.exit(&agentosv1.RunExited{Code: -1, Signal: int32(n)})
	case "nowhere":
		return p.exit(&agentosv1.RunExited{Code: 127, Detail: `find command "nowhere" in the sandbox: no such file`, Next: "agentos run --explain shows what is there"})
	case "reason":
		return p.exit(&agentosv1.RunExited{Code: -1, Signal: 9, Reason: argv[1], Detail: "as asked"})
	case "vanish":
		return nil
	case "hostile":
		p.out(hostileOutput)
		_ = p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stderr{Stderr: []byte("\x1b]52;c;x\x07err\n")}})
		return p.exit(&agentosv1.RunExited{})
	}
	return p.interact(argv)
}

// interact runs the programs that read.
func (p program) interact(argv []string) error {
	p.out("ready\r\n")
	untaken := 0
	for {
		in, err := p.st.Receive()
		if err != nil {
			p.note("gone")
			return nil
		}
		switch x := in.GetInput().(type) {
		case *agentosv1.RunInput_Stdin:
			if argv[0] == "deaf" || argv[0] == "stuck" {
				if untaken += len(x.Stdin); untaken > 256<<10 {
					return apierr.ToConnect(fault.New(fault.Limit, "wait", "more input is under way than may be"))
				}
				continue // takes nothing
			}
			_ = p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Taken{Taken: uint64(len(x.Stdin))}})
			if argv[0] == "cat" {
				_ = p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stdout{Stdout: x.Stdin}})
				_ = p.st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stderr{Stderr: x.Stdin}})
				continue
			}
			p.out(fmt.Sprintf("keys %q\r\n", x.Stdin))
			if strings.Contains(string(x.Stdin), "q") {
				return p.exit(&agentosv1.RunExited{})
			}
		case *agentosv1.RunInput_StdinEof:
			if argv[0] == "cat" {
				return p.exit(&agentosv1.RunExited{})
			}
			p.out("eof\r\n")
		case *agentosv1.RunInput_Window:
			p.out(fmt.Sprintf("window %dx%d\r\n", x.Window.GetRows(), x.Window.GetCols()))
		case *agentosv1.RunInput_Signal:
			p.note("signal %s", x.Signal)
			p.out("signal " + x.Signal + "\r\n")
			if x.Signal == "TERM" && argv[0] != "stuck" {
				return p.exit(&agentosv1.RunExited{Code: -1, Signal: 15})
			}
		case *agentosv1.RunInput_Detach:
			p.note("detached")
			return nil
		}
	}
}

func (fakeRun) Attach(_ context.Context, st *runStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	note("attach %s", first.GetAttach())
	if err := st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Started{Started: &agentosv1.RunStarted{Run: runID}}}); err != nil {
		return err
	}
	return program{st, note}.interact([]string{"attached"})
}

func summary() *agentosv1.RunSummary {
	return &agentosv1.RunSummary{Run: runID, Name: "nightly", Profile: "generic", State: "running", Started: timestamppb.New(t0), Command: "./agent.sh\x1b[2J", Uid: 1000, Processes: 3, MemoryBytes: 5 << 20}
}

func (fakeRun) List(_ context.Context, r *connect.Request[agentosv1.RunListRequest]) (*connect.Response[agentosv1.RunListResponse], error) {
	m := &agentosv1.RunListResponse{}
	if os.Getenv("FAKE") != "empty" {
		m.Runs = append(m.Runs, summary())
	}
	if r.Msg.GetAll() {
		m.Runs = append(m.Runs, &agentosv1.RunSummary{Run: "run-old", Name: "old", State: "terminated", Reason: "completed"})
	}
	return connect.NewResponse(m), nil
}

func fakePlan(profile string) *agentosv1.RunPlan {
	return &agentosv1.RunPlan{Json: `{"version":1,"tty":` + strconv.FormatBool(os.Getenv("FAKE_TTY") != "") + `}`, Profile: profile, Notices: []string{"--rw /x writes through"}, Lines: []*agentosv1.PlanLine{
		{Section: "files", Subject: "/usr", Access: "read, exec", Why: "system"}, {Section: "files", Subject: "/home/me/.ssh\x1b[2J", Access: "absent", Why: "not listed"},
		{Section: "limits", Subject: "pids", Access: "200", Why: "--limit"}}}
}

func (fakeRun) Plan(_ context.Context, r *connect.Request[agentosv1.RunSpec]) (*connect.Response[agentosv1.RunPlan], error) {
	doc, _ := json.Marshal(r.Msg)
	note("plan %s", doc)
	if r.Msg.GetStrength() == "full" {
		return nil, apierr.ToConnect(fault.New(fault.Unavailable, "run it as root", "plan run: strength %q needs root", "full"))
	}
	return connect.NewResponse(fakePlan("generic")), nil
}

func (fakeRun) Inspect(_ context.Context, r *connect.Request[agentosv1.RunInspectRequest]) (*connect.Response[agentosv1.RunInspectResponse], error) {
	if r.Msg.GetRun() != "nightly" {
		return nil, apierr.ToConnect(fault.New(fault.NotFound, "`agentos ps` lists the runs that go on", "no run %q goes on", r.Msg.GetRun()))
	}
	return connect.NewResponse(&agentosv1.RunInspectResponse{Summary: summary(), Plan: fakePlan("generic"), Layers: []string{"namespaces", "seccomp"}}), nil
}

func (fakeRun) Logs(_ context.Context, r *connect.Request[agentosv1.RunLogsRequest], st *connect.ServerStream[agentosv1.RunOutput]) error {
	note("logs %s %t", r.Msg.GetRun(), r.Msg.GetFollow())
	if r.Msg.GetRun() != "nightly" {
		return apierr.ToConnect(fault.New(fault.NotFound, "`agentos ps --all` lists your runs", "find run %q", r.Msg.GetRun()))
	}
	if err := st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stdout{Stdout: []byte(hostileOutput)}}); err != nil {
		return err
	}
	return st.Send(&agentosv1.RunOutput{Output: &agentosv1.RunOutput_Stderr{Stderr: []byte("err\n")}})
}

func (fakeRun) Stop(_ context.Context, r *connect.Request[agentosv1.RunStopRequest]) (*connect.Response[agentosv1.RunStopResponse], error) {
	note("stop %s %s %t", r.Msg.GetRun(), time.Duration(r.Msg.GetGraceMs())*time.Millisecond, r.Msg.GetKill())
	if r.Msg.GetRun() == "none" {
		return nil, apierr.ToConnect(fault.New(fault.NotFound, "agentos ps", "no run %q goes on", "none"))
	}
	return connect.NewResponse(&agentosv1.RunStopResponse{State: "terminated", Reason: "cancelled"}), nil
}

func (fakeRun) Profiles(context.Context, *connect.Request[agentosv1.ProfilesRequest]) (*connect.Response[agentosv1.ProfilesResponse], error) {
	return connect.NewResponse(&agentosv1.ProfilesResponse{Profiles: []*agentosv1.ProfileInfo{
		{Name: "claude-code", Summary: "Anthropic's Claude Code", File: "built in", Commands: []string{"claude"}}, {Name: "generic", Summary: "any program", File: "built in"}}}), nil
}
