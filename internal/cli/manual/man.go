package manual

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentos/internal/cli"
	"agentos/internal/lib/fault"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Man makes `agentos man`.
func Man(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages", GroupID: cli.GroupOther,
		Long:    "Write one man page a command into DIR, which is made when it is missing.",
		Example: "  agentos man ~/.local/share/man/man1 && man agentos-agent-once",
		Args:    cli.Args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fault.Wrap(err, fault.Unavailable, "choose a directory that you can write", "make directory %q", args[0])
			}
			n := int64(0)
			for _, p := range pages(c.Root()) {
				file := filepath.Join(args[0], strings.ReplaceAll(p.CommandPath(), " ", "-")+".1")
				if err := os.WriteFile(file, []byte(roff(p)), 0o644); err != nil {
					return fault.Wrap(err, fault.Unavailable, "choose a directory that you can write", "write man page %q", file)
				}
				n++
			}
			e.Printf("wrote %s to %s\n", cli.Count(n, "page"), args[0])
			return nil
		},
	}
}

func pages(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() {
			out = append(out, pages(s)...)
		}
	}
	return out
}

// roff is the page of one command in man(7) format.
func roff(c *cobra.Command) string {
	var b strings.Builder
	line := func(s ...string) { b.WriteString(strings.Join(s, "") + "\n") }
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	line(`.TH "`, strings.ToUpper(name), `" 1 "" "AgentOS" "AgentOS Manual"`)
	line(".SH NAME")
	line(esc(name), ` \- `, esc(c.Short))
	line(".SH SYNOPSIS")
	line(".B ", esc(c.UseLine()))
	if c.Long != "" {
		line(".SH DESCRIPTION")
		line(strings.ReplaceAll(esc(c.Long), "\n\n", "\n.PP\n"))
	}
	if c.Example != "" {
		line(".SH EXAMPLES\n.nf")
		line(esc(c.Example), "\n.fi")
	}
	options(&b, "OPTIONS", c.LocalNonPersistentFlags())
	inherited := c.InheritedFlags()
	if !c.HasParent() {
		inherited = c.PersistentFlags()
	}
	options(&b, "GLOBAL OPTIONS", inherited)
	if !c.HasParent() {
		line(".SH EXIT STATUS")
		for _, x := range Codes() {
			line(".TP\n.B ", strconv.Itoa(x.n), " ", esc(x.name), "\n", esc(x.help))
		}
	}
	var also []string
	if c.HasParent() {
		also = append(also, strings.ReplaceAll(c.Parent().CommandPath(), " ", "-"))
	}
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() {
			also = append(also, strings.ReplaceAll(s.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		line(".SH SEE ALSO")
		for i, a := range also {
			end := ","
			if i == len(also)-1 {
				end = ""
			}
			line(".BR ", esc(a), " (1)", end)
		}
	}
	return b.String()
}

func options(b *strings.Builder, title string, fs *pflag.FlagSet) {
	if !fs.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		arg, help := pflag.UnquoteUsage(f)
		if t := f.Value.Type(); strings.ToUpper(t) == t {
			arg = t
		}
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		b.WriteString(".TP\n.B " + esc(strings.TrimSpace(head+" "+arg)) + "\n" + esc(help) + "\n")
	})
}

// esc keeps text from being read as roff requests.
func esc(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
