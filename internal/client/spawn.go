package client

import (
	"os"
	"path/filepath"
	"runtime"

	"agentos/internal/lib/fault"
)

// SystemDirs is where packages put agentosd.
func SystemDirs() []string { return []string{"/usr/libexec/agentos", "/usr/lib/agentos"} }

// Find returns the agentosd beside the running program, or the first one in
// dirs. It never searches PATH: what runs is what was installed together.
func Find(dirs []string) (string, error) { return FindProgram("agentosd", dirs) }

// FindProgram returns another program of ours, found as Find finds agentosd.
func FindProgram(name string, dirs []string) (string, error) {
	program := name
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	looked := make([]string, 0, 1+len(dirs))
	if self, err := os.Executable(); err == nil {
		looked = append(looked, filepath.Dir(self))
	}
	looked = append(looked, dirs...)
	for _, d := range looked {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && (runtime.GOOS == "windows" || st.Mode()&0o111 != 0) {
			return p, nil
		}
	}
	return "", fault.New(fault.Unavailable, "run make build, or install "+program+" beside agentos",
		"find %s: it is not in %q", program, looked)
}
