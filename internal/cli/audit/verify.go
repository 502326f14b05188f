package audit

import (
	"fmt"
	"io"
	"os"
	"strings"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// maxNote bounds a checkpoint or key file in bytes.
const maxNote = 64 << 10

func verify(e *cli.Env) *cobra.Command {
	var key, point string
	c := &cobra.Command{
		Use: "verify", Short: "Prove that no record was changed, removed or reordered",
		Long: `Recompute the whole log from its records and hold it against its signed
checkpoint. The first bad record is named and the exit code is 9.

A log alone can't show that its tail was cut: give a checkpoint that was kept
elsewhere. A key that lies beside the log proves less than one that you kept:
give that, too.`,
		Example: "  agentos audit verify\n  agentos audit verify --key agentos.pub --checkpoint /mnt/usb/checkpoint",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			req := &agentosv1.VerifyRequest{}
			var err error
			if req.PublicKey, err = keyArg(key); err != nil {
				return err
			}
			if point != "" {
				if req.Checkpoint, err = readNote(point, e.In); err != nil {
					return err
				}
			}
			var resp *connect.Response[agentosv1.VerifyResponse]
			err = e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Audit.Verify(c.Context(), connect.NewRequest(req))
				return err
			})
			if err != nil {
				return err
			}
			if e.JSON {
				err = e.PrintJSON(resp.Msg)
			} else {
				verdict(e, resp.Msg, point != "")
			}
			if err == nil && !resp.Msg.GetOk() {
				p := resp.Msg.GetFirst()
				err = fault.New(fault.Corrupt, p.GetNext(), "audit log does not verify: record %d is the first bad one (%s)", p.GetSeq(), p.GetKind())
			}
			return err
		},
	}
	c.Flags().StringVar(&key, "key", "", "public key to trust, as text or in a `FILE`")
	c.Flags().StringVar(&point, "checkpoint", "", "`FILE` with a checkpoint that was kept elsewhere (- for standard input)")
	return c
}

// keyArg takes a note verifier key as it is ("name+hash+base64"), or a file
// that holds one.
func keyArg(s string) (string, error) {
	if s == "" || (strings.Count(s, "+") >= 2 && !strings.ContainsAny(s, "/\n")) {
		return s, nil
	}
	if _, err := os.Stat(s); err != nil && strings.Count(s, "+") >= 2 {
		return s, nil // base64 may hold a slash
	}
	k, err := readNote(s, strings.NewReader(""))
	if k = strings.TrimSpace(k); err == nil && k == "" {
		// Trusting the log's own key instead would prove less than was asked for.
		err = fault.New(fault.Usage, "give the key as `agentos audit checkpoint` prints it, or a file that holds it", "read key file %q: it is empty", s)
	}
	return k, err
}

func readNote(path string, in io.Reader) (string, error) {
	data, err := cli.ReadFile(path, in, maxNote)
	return strings.ToValidUTF8(string(data), "\uFFFD"), err
}

func verdict(e *cli.Env, r *agentosv1.VerifyResponse, held bool) {
	st := e.Style
	if p := r.GetFirst(); !r.GetOk() {
		e.Printf("%s the log does not verify\n", st.Mark(false))
		e.Printf("  first bad record  %s  %s\n", st.Bad(fmt.Sprint(p.GetSeq())), st.Bad(termsafe.Line(p.GetKind())))
		e.Para("  ", p.GetDetail())
	} else {
		e.Printf("%s %s verify: none changed, removed or reordered\n", st.Mark(true), cli.Count(int64(r.GetRecords()), "record"))
		e.Printf("%s %s, %s: each has exactly one\n", st.Mark(r.GetIntents() == r.GetOutcomes()), cli.Count(int64(r.GetIntents()), "intent"), cli.Count(int64(r.GetOutcomes()), "outcome"))
	}
	if r.GetRoot() != "" {
		e.Printf("  root        %s\n", termsafe.Line(r.GetRoot()))
	}
	if r.GetCheckpointSize() > 0 {
		e.Printf("  checkpoint  covers %s, signed %s\n", cli.Count(int64(r.GetCheckpointSize()), "record"), cli.When(r.GetCheckpointAt().AsTime()))
	} else {
		e.Printf("  checkpoint  %s\n", st.Warn("none holds"))
	}
	if r.GetKeyFromState() {
		e.Printf("  key         %s, %s\n", termsafe.Line(r.GetKeyName()), st.Warn("taken from beside the log: give --key to trust one that you kept"))
	} else {
		e.Printf("  key         %s, the one you gave\n", termsafe.Line(r.GetKeyName()))
	}
	if !held && r.GetOk() {
		e.Printf("  tail        %s\n", st.Warn("not held against a checkpoint kept elsewhere: give --checkpoint to find a cut tail"))
	}
	for _, n := range r.GetNotes() {
		e.Printf("  note        %s\n", termsafe.Line(n))
	}
}

func checkpoint(e *cli.Env) *cobra.Command {
	out := ""
	c := &cobra.Command{
		Use: "checkpoint", Short: "Sign the log as it is and print the signed note",
		Long: `Sign the log as it is, send the checkpoint to the configured anchors and print it.
Keep it away from this machine: agentos audit verify --checkpoint FILE then finds a
log that was cut or rewritten.`,
		Example: "  agentos audit checkpoint --out /mnt/usb/checkpoint",
		Args:    cli.Args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var resp *connect.Response[agentosv1.CheckpointResponse]
			err := e.With(c.Context(), func(s *client.Session) (err error) {
				resp, err = s.Audit.Checkpoint(c.Context(), connect.NewRequest(&agentosv1.CheckpointRequest{}))
				return err
			})
			if err != nil {
				return err
			}
			if out != "" {
				if err := cli.WriteFile(out, []byte(resp.Msg.GetNote()), 0o644); err != nil {
					return err
				}
			}
			if e.JSON {
				return e.PrintJSON(resp.Msg)
			}
			signed(e, resp.Msg, out)
			return nil
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "write the note to this `FILE`")
	return c
}

// signed prints the note alone on standard output, so that a redirection keeps
// exactly it, and the rest on standard error.
func signed(e *cli.Env, r *agentosv1.CheckpointResponse, out string) {
	if out == "" {
		e.Printf("%s", termsafe.Text(r.GetNote()))
	} else {
		e.Printf("wrote the checkpoint of %s to %s\n", cli.Count(int64(r.GetSize()), "record"), out)
	}
	fmt.Fprintf(e.Err, "key %s\n", termsafe.Line(r.GetPublicKey()))
	for _, a := range r.GetAnchors() {
		state := "sent"
		if !a.GetOk() {
			state = "failed"
		}
		fmt.Fprintf(e.Err, "anchor %s %s %s\n", termsafe.Line(a.GetName()), state, termsafe.Line(a.GetDetail()))
	}
	if len(r.GetAnchors()) == 0 {
		fmt.Fprintf(e.Err, "no anchor is configured: keep this note elsewhere, or set audit.anchors\n")
	}
}
