// Package manual is what the command line says about itself: version, shell
// completion, man pages, and help topics.
//
// State owned: none. Imports: cli, lib/{endreason,fault}, cobra. Imported by:
// cmd/agentos. Tests: manual_test.go compares the topics with
// docs/spec/exit-codes.md; scripts in cmd/agentos/testdata.
package manual

import (
	"encoding/json"
	"runtime"

	"agentos/internal/cli"
	"agentos/internal/lib/fault"

	"github.com/spf13/cobra"
)

// Version makes `agentos version`.
func Version(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", GroupID: cli.GroupOther, Args: cli.Args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if !e.JSON {
				e.Printf("agentos version %s (%s, %s/%s)\n", e.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return nil
			}
			doc, err := json.Marshal(map[string]string{"version": e.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			e.Printf("%s\n", doc)
			return err
		},
	}
}

// Completion makes `agentos completion`.
func Completion(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for your shell", GroupID: cli.GroupOther,
		Long: "Print a script that completes agentos commands and flags in your shell.",
		Example: `  source <(agentos completion bash)
  agentos completion zsh > "${fpath[1]}/_agentos"
  agentos completion fish > ~/.config/fish/completions/agentos.fish`,
		Args: cli.Args(1, 1), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(e.Out, true)
			case "zsh":
				return root.GenZshCompletion(e.Out)
			case "fish":
				return root.GenFishCompletion(e.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(e.Out)
			}
			return fault.New(fault.Usage, "write bash, zsh, fish or powershell", "complete for shell %q: not known", args[0])
		},
	}
}
