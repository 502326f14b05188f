package run

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

func probe(e *cli.Env) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "probe", Short: "Hold a sandbox against its plan, from inside",
		Long: `Start a program of ours in the very sandbox that these flags of agentos run give,
and let it try what the plan allows and what it doesn't: files, identity, network,
processes, system calls. What the kernel does is compared with what the plan says.
It makes and removes small files where the plan says write, and sends nothing.

The exit code is 22 when something differs.`,
		Example: `  agentos sandbox probe
  agentos sandbox probe --profile claude-code --rw .
  agentos sandbox probe --json | jq '.[] | select(.agree | not)'`,
		Args: cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return o.probe(c.Context(), e) },
	}
	f := c.Flags()
	f.SortFlags = false
	o.sandboxFlags(f)
	return c
}

func (o *options) probe(ctx context.Context, e *cli.Env) error {
	program, err := client.FindProgram("agentos-probe", client.SystemDirs())
	if err != nil {
		return err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return fault.Wrap(err, fault.Unavailable, "install it again", "find agentos-probe")
	}
	o.ttySet = true // three streams: the findings are one of them
	spec, err := o.spec(e, []string{program})
	if err != nil {
		return err
	}
	if err := show(ctx, e, spec); err != nil {
		return err
	}
	out, err := answer(ctx, e, spec)
	if err != nil {
		return err
	}
	list, err := sandboxplan.ReadFindings(out)
	if err != nil {
		return err
	}
	return judge(e, list)
}

// show adds the program to the spec where the sandbox wouldn't show it.
func show(ctx context.Context, e *cli.Env, spec *agentosv1.RunSpec) error {
	return e.WithShared(ctx, func(s *client.Session) error {
		_, refused := s.Run.Plan(ctx, connect.NewRequest(spec))
		if refused == nil || fault.KindOf(s.Explain(refused)) != fault.Denied {
			return refused
		}
		spec.Ro = append(spec.Ro, spec.GetCommand()[0])
		if _, err := s.Run.Plan(ctx, connect.NewRequest(spec)); err != nil {
			return refused // of what was asked for, not of what we added
		}
		return nil
	})
}

// question is the input of agentos-probe. It is made at the first Read, when the
// run has begun: only then is there a plan with this run's own user and folders.
type question struct {
	ctx  context.Context
	e    *cli.Env
	s    *session // its Started names the run
	cs   *client.Session
	err  error // why there is none; of the reading goroutine until done is closed
	done chan struct{}
	r    *bytes.Reader
}

// Read is called by one goroutine.
func (q *question) Read(p []byte) (int, error) {
	if q.r == nil {
		b, err := q.ask()
		q.err, q.r = err, bytes.NewReader(b) // without a question there is no answer
		close(q.done)
	}
	return q.r.Read(p)
}

func (q *question) ask() ([]byte, error) {
	r, err := q.cs.Run.Inspect(q.ctx, connect.NewRequest(&agentosv1.RunInspectRequest{Run: q.s.started.GetRun()}))
	if err != nil {
		return nil, q.cs.Explain(err)
	}
	doc := sandboxplan.Probe{Version: sandboxplan.Version, Absent: []string{}}
	if err := json.Unmarshal([]byte(r.Msg.GetPlan().GetJson()), &doc.Plan); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "use the same version of every AgentOS program", "read plan")
	}
	cfg, err := q.cs.Host.Config(q.ctx, connect.NewRequest(&agentosv1.ConfigRequest{}))
	if err != nil {
		return nil, q.cs.Explain(err)
	}
	for _, v := range cfg.Msg.GetValues() {
		if v.GetKey() == "state_dir" {
			doc.Absent = private(v.GetValue(), q.e.Getenv("HOME"))
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "", "write plan")
	}
	return b, nil
}

// private are this person's places that no sandbox shows.
func private(state, home string) (out []string) {
	for _, p := range []string{state, home, filepath.Join(home, ".ssh"), filepath.Join(home, ".gnupg"), filepath.Join(home, ".aws")} {
		if sandboxplan.CheckPath(p) == nil && p != "/" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// answer runs agentos-probe as any other program and returns what it wrote.
func answer(ctx context.Context, e *cli.Env, spec *agentosv1.RunSpec) ([]byte, error) {
	inner := *e
	out := &bounded{most: sandboxplan.MaxProbe}
	inner.Out, inner.OutTerm, inner.JSON = out, false, false
	s := newSession(&inner, e.JSON)
	s.name = runName(spec)
	ctx, done := s.own(ctx)
	defer done()
	q := &question{ctx: ctx, e: e, s: s, done: make(chan struct{})}
	inner.In = q
	err := e.WithShared(ctx, func(cs *client.Session) error {
		q.cs = cs
		return s.relay(ctx, cs.Run.Start(ctx), &agentosv1.RunInput{Input: &agentosv1.RunInput_Spec{Spec: spec}}, false)
	})
	select {
	case <-q.done:
		if q.err != nil {
			return nil, q.err
		}
	default:
	}
	return out.b, s.verdict(err)
}

// bounded keeps what is written, up to a number of bytes.
type bounded struct {
	b    []byte
	most int
}

// Write refuses what would be too much.
func (w *bounded) Write(p []byte) (int, error) {
	if len(w.b)+len(p) > w.most {
		return 0, fault.New(fault.Limit, "use the same version of every AgentOS program", "read findings: more than %d bytes", w.most)
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// judge shows the findings and ends with exit code 22 when one disagrees.
func judge(e *cli.Env, list []sandboxplan.Finding) error {
	bad := int64(0)
	for _, f := range list {
		if !f.Agree {
			bad++
		}
	}
	if e.JSON {
		doc, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return fault.Wrap(err, fault.Internal, "", "write findings")
		}
		e.Printf("%s\n", termsafe.JSON(doc))
	} else {
		printFindings(e, list)
	}
	if bad > 0 {
		return &cli.Exit{Code: cli.ExitFinding, Kind: "finding", Msg: cli.Count(bad, "difference") + " between the plan and what the kernel does",
			Next: "don't run an agent in this sandbox; agentos doctor shows what this host enforces"}
	}
	if !e.JSON {
		e.Printf("\n%s\n", e.Style.Good(cli.Count(int64(len(list)), "check")+": the kernel does what the plan says"))
	}
	return nil
}

func printFindings(e *cli.Env, list []sandboxplan.Finding) {
	t := e.NewTable("", "CHECK", "PLAN SAYS", "KERNEL DOES", "SEEN BY")
	for _, f := range list {
		mark, paint := "✓", e.Style.Good
		if !f.Agree {
			mark, paint = "✗", e.Style.Bad
		}
		t.Row(mark, cli.Short(f.Check, 60), cli.Short(f.Plan, 40), cli.Short(f.Kernel, 60), cli.Short(f.Detail, 80))
		t.Paint(0, paint)
		if !f.Agree {
			t.Paint(3, paint)
		}
		t.Paint(4, e.Style.Dim)
	}
	t.Write(e.Out, "")
}
