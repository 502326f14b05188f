package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const passing = `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"pass","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"none","Output":"?   \tnone\t[no test files]\n"}
{"Action":"skip","Package":"none"}
`

const skipping = `{"Action":"output","Package":"b","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"b","Test":"TestRoot","Output":"    b_test.go:7: needs root: changes UID\n"}
{"Action":"output","Package":"b","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"b","Test":"TestRoot"}
{"Action":"output","Package":"b","Output":"ok  \tb\t0.2s\n"}
{"Action":"pass","Package":"b"}
`

const failing = `{"Action":"output","Package":"c","Test":"TestY","Output":"    c_test.go:1: wrong\n"}
{"Action":"fail","Package":"c","Test":"TestY"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t0.1s\n"}
{"Action":"fail","Package":"c"}
`

const broken = `{"ImportPath":"d","Action":"build-output","Output":"d.go:1: undefined: x\n"}
{"ImportPath":"d","Action":"build-fail"}
{"Action":"output","Package":"d","Output":"FAIL\td [build failed]\n"}
{"Action":"fail","Package":"d"}
`

func TestTally(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		ci       bool
		wait     error
		want     string // output
		err      string // "" for success
	}{
		{"pass", passing, true, nil, "ok  \ta\t0.1s\ntests: 1 passed, 0 failed, 0 left out\n", ""},
		{"skip at home", passing + skipping, false, nil, "ok  \ta\t0.1s\nok  \tb\t0.2s\nleft out, needs root: changes UID:\n  b TestRoot\ntests: 1 passed, 0 failed, 1 left out\n", ""},
		{"skip in CI", passing + skipping, true, nil, "ok  \ta\t0.1s\nok  \tb\t0.2s\nleft out, needs root: changes UID:\n  b TestRoot\ntests: 1 passed, 0 failed, 1 left out\n", "1 tests were skipped"},
		{"fail", passing + failing, false, nil, "ok  \ta\t0.1s\n    c_test.go:1: wrong\nFAIL\tc\t0.1s\ntests: 1 passed, 1 failed, 0 left out\n", "1 tests in 1 packages failed"},
		{"build failure", passing + broken, false, nil, "ok  \ta\t0.1s\nd.go:1: undefined: x\nFAIL\td [build failed]\ntests: 1 passed, 0 failed, 0 left out\n", "0 tests in 1 packages failed"},
		{"go test itself failed", passing, false, errors.New("exit status 2"), "ok  \ta\t0.1s\ntests: 1 passed, 0 failed, 0 left out\n", "exit status 2"},
		{"nothing ran", "", false, nil, "tests: 0 passed, 0 failed, 0 left out\n", "no test ran"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			res, err := tally(strings.NewReader(tt.in), &out)
			if err != nil {
				t.Fatal(err)
			}
			res.summary(&out)
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			err = res.verdict(tt.ci, tt.wait)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("verdict = %v, want %q", err, tt.err)
			}
		})
	}
}

func TestTallyRefusesOtherBytes(t *testing.T) {
	t.Parallel()
	if _, err := tally(strings.NewReader("ok  \ta\t0.1s\n"), &bytes.Buffer{}); err == nil {
		t.Error("plain text was read as events")
	}
}
