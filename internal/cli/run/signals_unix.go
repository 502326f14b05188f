//go:build unix

package run

import (
	"os"
	"os/signal"
	"syscall"
)

// names are the signals that are passed on to a program.
func names() map[os.Signal]string {
	return map[os.Signal]string{
		syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	}
}

// listen takes the process's signals for a session: nobody else acts on Ctrl-C
// any more. Stopping keeps its usual meaning for a session without a terminal,
// which stops and goes on as it is.
func listen() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 32)
	signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	for s := range names() {
		signal.Notify(c, s)
	}
	signal.Notify(c, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}

func isWindow(s os.Signal) bool   { return s == syscall.SIGWINCH }
func isStop(s os.Signal) bool     { return s == syscall.SIGTSTP }
func isContinue(s os.Signal) bool { return s == syscall.SIGCONT }

// number of a signal, for an exit code.
func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// stopSelf stops this process as Ctrl-Z does; it returns when it goes on.
func stopSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
