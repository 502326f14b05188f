// Package spawn starts our own sister binaries with exactly what they are given:
// these descriptors, this user, these groups, this environment, nothing else.
//
// State owned: the processes that it started, until Done. Imports: lib/fault,
// x/sys. Imported by: the daemon, the sandbox. Linux only.
//
// Lock order: Process.mu is a leaf. One goroutine per process waits for its end
// and ends with it.
// Invariants: no descriptor of this process reaches a child unless it is listed;
// the bytes that run are those of the file that was opened and verified, whatever
// its path means now; a child is the leader of its own session and process group,
// dies with this process (PDEATHSIG), and takes its group along when it ends. A
// group is signalled only while its leader is not reaped, so never a stranger's.
// What leaves the group on purpose is not caught: profiles that execute can't
// (no setsid, no setpgid), and control groups are the stronger means.
// PDEATHSIG is tied to the thread that forked: code of ours must not end a
// goroutine that is locked to its thread.
// Tests: spawn_linux_test.go,
// end_linux_test.go. Spec: OSA-02, INV-05.
package spawn
