//go:build !unix

package run

import (
	"os"
	"os/signal"
)

func names() map[os.Signal]string { return map[os.Signal]string{os.Interrupt: "INT"} }

func listen() (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 32)
	signal.Reset(os.Interrupt)
	signal.Notify(c, os.Interrupt)
	return c, func() { signal.Stop(c) }
}

func isWindow(os.Signal) bool   { return false }
func isStop(os.Signal) bool     { return false }
func isContinue(os.Signal) bool { return false }
func number(os.Signal) int      { return 2 }
func stopSelf()                 {}
