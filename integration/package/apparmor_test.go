//go:build linux

package deb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAppArmor runs the package's scripts with AppArmors of different kinds, where
// they see an /etc/apparmor.d of their own.
func TestAppArmor(t *testing.T) {
	needs(t)
	src, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const script = `set -e
mount -t tmpfs none /etc/apparmor.d
mkdir -p /etc/apparmor.d/disable
eval "$PREPARE"
for step in $STEPS; do sh "$SRC/packaging/debian/${step%:*}" "${step#*:}"; done
ls -l /etc/apparmor.d | sed -n 's/.* agentos-launcher/agentos-launcher/p'
cat "$LOG"`
	const link, path = "agentos-launcher -> /usr/share/agentos/apparmor/agentos-launcher\n", "/etc/apparmor.d/agentos-launcher\n"
	if err := os.Mkdir("/etc/apparmor.d", 0o755); err == nil {
		t.Cleanup(func() { os.Remove("/etc/apparmor.d") })
	}
	for name, tc := range map[string]struct{ prepare, parser, enabled, steps, want string }{
		"loaded":              {"", "exit 0", "exit 0", "postinst:configure", link + "-r -T " + path},
		"twice":               {"", "exit 0", "exit 0", "postinst:configure postinst:triggered", link + "-r -T " + path + "-r -T " + path},
		"not active":          {"", "exit 0", "exit 1", "postinst:configure", link},
		"too old":             {"", "exit 1", "exit 0", "postinst:configure", ""},
		"disabled":            {"touch /etc/apparmor.d/disable/agentos-launcher", "exit 0", "exit 0", "postinst:configure", link},
		"the admin's own":     {"echo own >/etc/apparmor.d/agentos-launcher", "exit 0", "exit 0", "postinst:configure prerm:remove", "agentos-launcher\n-r -T " + path},
		"does not load":       {"", `[ "$1" = -Q ]`, "exit 0", "postinst:configure", link + "-r -T " + path},
		"removed":             {"", "exit 0", "exit 0", "postinst:configure prerm:remove postrm:remove postrm:purge", "-r -T " + path + "-R " + path},
		"removed, not loaded": {"", `[ "$1" != -R ]`, "exit 0", "postinst:configure prerm:remove postrm:remove", "-r -T " + path + "-R " + path},
		"upgraded":            {"", "exit 0", "exit 0", "postinst:configure prerm:upgrade postrm:upgrade postinst:configure", link + "-r -T " + path + "-r -T " + path},
	} {
		t.Run(name, func(t *testing.T) {
			bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
			for file, text := range map[string]string{
				filepath.Join(bin, "apparmor_parser"): "#!/bin/sh\n[ \"$1\" = -Q ] || echo \"$@\" >>" + log + "\n" + tc.parser + "\n",
				filepath.Join(bin, "aa-enabled"):      "#!/bin/sh\n" + tc.enabled + "\n",
				log:                                   "",
			} {
				if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script)
			cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "PREPARE=" + tc.prepare, "STEPS=" + tc.steps, "SRC=" + src, "LOG=" + log}
			out, err := cmd.Output()
			if err != nil || string(out) != tc.want {
				t.Errorf("%v\n%s\nwant\n%s", err, out, tc.want)
			}
		})
	}
}
