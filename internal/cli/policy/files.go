package policy

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"agentos/internal/api/agentosv1"
	"agentos/internal/cli"
	"agentos/internal/client"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/termsafe"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// Limits of what is sent to be judged.
const (
	maxFile  = 1 << 20 // bytes of one file
	maxFiles = 1000
	maxTotal = 8 << 20 // bytes of all
)

// collect reads files as named, and from directories those with one of the
// extensions, not below. "-" is standard input.
func collect(paths []string, in io.Reader, exts ...string) ([]*agentosv1.SourceFile, error) {
	var names []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if p != "-" && err == nil && st.IsDir() {
			entries, err := os.ReadDir(p)
			if err != nil {
				return nil, fault.Wrap(err, fault.NotFound, "name a directory that you can read", "read directory %q", p)
			}
			n := len(names)
			for _, d := range entries {
				if slices.Contains(exts, filepath.Ext(d.Name())) && !d.IsDir() {
					names = append(names, filepath.Join(p, d.Name()))
				}
			}
			if len(names) == n {
				return nil, fault.New(fault.NotFound, fmt.Sprintf("name files, or a directory with %v files", exts), "read directory %q: nothing to read in it", p)
			}
			continue
		}
		names = append(names, p)
	}
	if len(names) > maxFiles {
		return nil, fault.New(fault.Limit, "name fewer", "read %d files: more than %d", len(names), maxFiles)
	}
	var out []*agentosv1.SourceFile
	total := 0
	for _, n := range names {
		data, err := cli.ReadFile(n, in, maxFile)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > maxTotal {
			return nil, fault.New(fault.Limit, "name fewer", "read files: more than %s together", cli.Bytes(maxTotal))
		}
		out = append(out, &agentosv1.SourceFile{Name: n, Data: data})
	}
	return out, nil
}

func format(e *cli.Env) *cobra.Command {
	write, only := false, false
	c := &cobra.Command{
		Use: "fmt FILE...", Short: "Format policy files",
		Long:    "Print policy files in the canonical layout, or rewrite them with --write. With --check a file that would change ends with exit code 22.",
		Example: "  agentos policy fmt --write policies/*.cedar\n  agentos policy fmt - < draft.cedar",
		Args:    cli.Args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			if write && only {
				return fault.New(fault.Usage, "use one of them", "format policies: --write and --check exclude each other")
			}
			files, err := collect(args, e.In, ".cedar")
			if err != nil {
				return err
			}
			changed := int64(0)
			err = e.With(c.Context(), func(s *client.Session) error {
				for _, f := range files {
					resp, err := s.Policy.Fmt(c.Context(), connect.NewRequest(&agentosv1.PolicyFmtRequest{File: f}))
					if err != nil {
						return err
					}
					n, err := put(e, f, resp.Msg, write, only)
					if err != nil {
						return err
					}
					changed += n
				}
				return nil
			})
			if err == nil && only && changed > 0 {
				err = &cli.Exit{Code: cli.ExitFinding, Kind: "finding", Msg: cli.Count(changed, "file") + " would change", Next: "agentos policy fmt --write FILE..."}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&write, "write", "w", false, "rewrite the files that change")
	c.Flags().BoolVar(&only, "check", false, "only name the files that would change")
	return c
}

// put does what was asked with one formatted file and counts whether it changed.
func put(e *cli.Env, f *agentosv1.SourceFile, m *agentosv1.PolicyFmtResponse, write, only bool) (int64, error) {
	changed := !bytes.Equal(f.GetData(), m.GetData())
	n := int64(0)
	if changed {
		n = 1
	}
	switch {
	case e.JSON:
		return n, e.PrintJSONLine(m)
	case only || write:
		if !changed {
			return 0, nil
		}
		if write && f.GetName() != "-" {
			st, err := os.Stat(f.GetName())
			if err != nil {
				return n, fault.Wrap(err, fault.NotFound, "name a file that you can write", "look at %q", f.GetName())
			}
			if err := cli.WriteFile(f.GetName(), m.GetData(), st.Mode().Perm()); err != nil {
				return n, err
			}
		}
		e.Printf("%s\n", f.GetName())
		return n, nil
	}
	if e.OutTerm {
		e.Printf("%s", termsafe.Text(string(m.GetData())))
		return n, nil
	}
	_, err := e.Out.Write(m.GetData()) // the caller's own file, byte for byte
	return n, err
}
