package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help prints what a command is, how to call it, examples first.
func (e *Env) help(c *cobra.Command, _ []string) {
	e.settle()
	b, st := &strings.Builder{}, e.Style
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	fmt.Fprintf(b, "%s\n\n%s\n  %s\n", about, st.Bold("Usage"), usageLine(c))
	if c.Example != "" {
		fmt.Fprintf(b, "\n%s\n%s\n", st.Bold("Examples"), c.Example)
	}
	pad := 0
	for _, s := range c.Commands() {
		pad = max(pad, len(s.Name()))
	}
	section := func(title, group string) {
		printed := false
		for _, s := range c.Commands() {
			if !s.IsAvailableCommand() && s.Name() != "help" || s.GroupID != group {
				continue
			}
			if !printed {
				fmt.Fprintf(b, "\n%s\n", st.Bold(title))
				printed = true
			}
			fmt.Fprintf(b, "  %s%s  %s\n", st.Name(s.Name()), strings.Repeat(" ", pad-len(s.Name())), s.Short)
		}
	}
	for _, g := range c.Groups() {
		section(g.Title, g.ID)
	}
	section("Commands", "")
	flags(b, st, "Flags", c.LocalNonPersistentFlags())
	if c.HasParent() {
		flags(b, st, "Flags of every command", c.InheritedFlags())
	} else {
		flags(b, st, "Flags of every command", c.PersistentFlags())
	}
	if c.HasSubCommands() {
		fmt.Fprintf(b, "\n%s\n", st.Dim(c.CommandPath()+" COMMAND --help says more about a command; agentos help exit-codes lists the exit codes."))
	}
	_, _ = e.Out.Write([]byte(b.String()))
}

func usageLine(c *cobra.Command) string {
	if c.HasAvailableSubCommands() {
		return c.CommandPath() + " COMMAND [flags]"
	}
	return c.UseLine()
}

func flags(b *strings.Builder, st Style, title string, fs *pflag.FlagSet) {
	type row struct{ left, help string }
	var rows []row
	pad := 0
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		left := "    --" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", --" + f.Name
		}
		// A word in back quotes in the help text names the argument.
		arg, help := pflag.UnquoteUsage(f)
		if t := f.Value.Type(); strings.ToUpper(t) == t {
			arg = t
		}
		if arg != "" {
			left += " " + arg
		}
		rows, pad = append(rows, row{left, help}), max(pad, len(left))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", st.Bold(title))
	for _, r := range rows {
		fmt.Fprintf(b, "  %s%s  %s\n", r.left, strings.Repeat(" ", pad-len(r.left)), r.help)
	}
}
