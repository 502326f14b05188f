// Package audit is `agentos audit`: read the log, prove that it is whole, sign
// it. Spec: AOS-12, INV-11.
//
// State owned: none. Imports: cli, client, api/agentosv1, lib/{fault,termsafe}.
// Imported by: cmd/agentos. Tests: audit_test.go; scripts in
// cmd/agentos/testdata.
package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Command makes `agentos audit`.
func Command(e *cli.Env) *cobra.Command {
	return cli.Noun("audit", "Read the audit log, verify it, sign it", cli.GroupWhy,
		log(e), show(e), verify(e), checkpoint(e))
}

// kinds of records, for the help and to catch typing errors early.
var kinds = []string{"log.genesis", "run.start", "run.state", "run.end", "call.intent", "call.outcome", "call.denied", "log.recovery"}

func log(e *cli.Env) *cobra.Command {
	req := &agentosv1.LogRequest{}
	tail := uint32(0)
	c := &cobra.Command{
		Use: "log", Short: "List the records",
		Example: "  agentos audit log -n 20\n  agentos audit log --run run-01J --kind call.denied\n  agentos audit log --json | jq .body",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if tail > 0 && req.Limit > 0 {
				return fault.New(fault.Usage, "use one of them", "list records: --tail and --limit exclude each other")
			}
			if tail > 0 {
				req.Limit, req.Tail = tail, true
			}
			for _, k := range req.Kinds {
				if !slices.Contains(kinds, k) {
					return fault.New(fault.Usage, "use one of "+strings.Join(kinds, ", "), "list records: kind %q does not exist", k)
				}
			}
			return e.With(c.Context(), func(s *client.Session) error {
				stream, err := s.Audit.Log(c.Context(), connect.NewRequest(req))
				if err != nil {
					return err
				}
				defer stream.Close()
				return list(e, stream)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&req.Run, "run", "", "only this `RUN` or its unique prefix")
	f.StringVar(&req.Call, "call", "", "only this `CALL` or its unique prefix")
	f.StringSliceVar(&req.Kinds, "kind", nil, "only these `KINDS`, such as call.denied")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	f.Uint64Var(&req.From, "from", 0, "from this sequence `NUMBER` on")
	f.Uint32Var(&req.Limit, "limit", 0, "at most `N` records, the first that match")
	f.Uint32VarP(&tail, "tail", "n", 0, "only the last `N` that match")
	return c
}

// list prints records as they come, in tables of a bounded size, so that a long
// log needs no memory.
func list(e *cli.Env, stream *connect.ServerStreamForClient[agentosv1.AuditRecord]) error {
	const batch = 200
	table, n := (*cli.Table)(nil), 0
	for stream.Receive() {
		r := stream.Msg()
		n++
		if e.JSON {
			if err := e.PrintJSONLine(r); err != nil {
				return err
			}
			continue
		}
		if table == nil {
			table = e.NewTable("SEQ", "TIME", "KIND", "CALL OR RUN", "WHAT")
		}
		table.Row(strconv.FormatUint(r.GetSeq(), 10), when(e, r), r.GetKind(), whose(r), what(r))
		if r.GetKind() == "call.denied" {
			table.Paint(2, e.Style.Bad)
		}
		if n%batch == 0 {
			table.Write(e.Out, "")
			table = nil
		}
	}
	if table != nil {
		table.Write(e.Out, "")
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if n == 0 && !e.JSON {
		e.Printf("no record matches\n")
	}
	return nil
}

// when leaves out the year where there is little room.
func when(e *cli.Env, r *agentosv1.AuditRecord) string {
	if e.Width > 0 && e.Width < 110 {
		return r.GetAt().AsTime().UTC().Format("01-02 15:04:05")
	}
	return cli.When(r.GetAt().AsTime())
}

// whose is the most precise ID of a record, whole, so that it can be copied:
// the beginnings of IDs made in the same millisecond are alike.
func whose(r *agentosv1.AuditRecord) string {
	if r.GetCall() != "" {
		return r.GetCall()
	}
	return r.GetRun()
}

// what sums up a record from the fields that its kind has.
func what(r *agentosv1.AuditRecord) string {
	f := r.GetBody().GetFields()
	var parts []string
	for _, k := range []string{"action", "resource", "goal", "state", "stage", "status", "reason", "key"} {
		if v, ok := f[k]; ok && v.GetStringValue() != "" {
			parts = append(parts, v.GetStringValue())
		}
	}
	return cli.Short(strings.Join(parts, " "), 120)
}

func show(e *cli.Env) *cobra.Command {
	full := false
	c := &cobra.Command{
		Use: "show SEQ|CALL", Short: "Show a record, or the records of a call, with what they refer to",
		Example: "  agentos audit show 42\n  agentos audit show call-01J8",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			var resp *connect.Response[agentosv1.ShowResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Audit.Show(c.Context(), connect.NewRequest(&agentosv1.ShowRequest{Ref: args[0]}))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			for i, r := range resp.Msg.GetRecords() {
				if i > 0 {
					e.Printf("\n")
				}
				record(e, r, resp.Msg.GetPayloads(), full)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&full, "full", false, "don't cut payloads at 4 KiB")
	return c
}

// maxShown bounds a payload on the screen in bytes, unless --full.
const maxShown = 4 << 10

func record(e *cli.Env, r *agentosv1.AuditRecord, payloads map[string][]byte, full bool) {
	st := e.Style
	e.Printf("%s %d  %s  %s\n", st.Bold("record"), r.GetSeq(), st.Bold(termsafe.Line(r.GetKind())), cli.When(r.GetAt().AsTime()))
	for _, p := range [][2]string{{"run", r.GetRun()}, {"call", r.GetCall()}, {"agent", r.GetAgent()}, {"owner", fmt.Sprint(r.GetOwner())}, {"leaf", r.GetLeaf()}} {
		if p[1] != "" {
			e.Printf("  %-6s %s\n", p[0], termsafe.Line(p[1]))
		}
	}
	if b := r.GetBody(); len(b.GetFields()) > 0 {
		doc, err := json.MarshalIndent(b.AsMap(), "", "  ")
		if err == nil {
			e.Para("  ", string(doc))
		}
	}
	names := make([]string, 0, len(r.GetPayloads()))
	for n := range r.GetPayloads() {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		commitment := r.GetPayloads()[n]
		data, ok := payloads[commitment]
		var pretty bytes.Buffer
		if json.Indent(&pretty, data, "", "  ") == nil {
			data = pretty.Bytes()
		}
		e.Printf("  %s %s\n", st.Name(termsafe.Line(n)), st.Dim(termsafe.Line(commitment)))
		switch {
		case !ok:
			e.Printf("    %s\n", st.Dim("forgotten: only its commitment is left"))
		case len(data) > maxShown && !full:
			e.Para("    ", string(data[:maxShown]))
			e.Printf("    %s\n", st.Dim(fmt.Sprintf("… cut at %s of %s; --full shows all", cli.Bytes(maxShown), cli.Bytes(uint64(len(data))))))
		default:
			e.Para("    ", string(data))
		}
	}
}
