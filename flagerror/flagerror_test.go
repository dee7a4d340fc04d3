package flagerror

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestPlain: no message has the words of Go's functions, and those of others stay.
func TestPlain(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Int32Slice("tokens", nil, "")
	flags.IntSlice("prompts", nil, "")
	flags.Float64Slice("rates", nil, "")
	flags.IntP("count", "n", 0, "")
	flags.Uint64("seed", 0, "")
	flags.Float64("scale", 0, "")
	flags.Duration("wait", time.Second, "")
	flags.Bool("json", false, "")
	flags.Func("own", "", func(string) error { return errors.New("want red") })
	_, cause := strconv.ParseFloat("hot", 64)
	if err := Number(cause); err.Error() != "want a number" {
		t.Error(err)
	}
	for arg, want := range map[string]string{
		"--tokens=1,2,a": `invalid argument "1,2,a" for "--tokens" flag: want whole numbers with commas between them, ` +
			`and "a" is none`,
		"--tokens=9999999999":    `invalid argument "9999999999" for "--tokens" flag: "9999999999" is too large`,
		"--tokens=1,-9999999999": `invalid argument "1,-9999999999" for "--tokens" flag: "-9999999999" is too small`,
		"--tokens=": `invalid argument "" for "--tokens" flag: want whole numbers with commas between them, ` +
			`and "" is none`,
		"--prompts=a": `invalid argument "a" for "--prompts" flag: want whole numbers with commas between them, ` +
			`and "a" is none`,
		"--rates=1,x": `invalid argument "1,x" for "--rates" flag: want numbers with commas between them, and "x" is none`,
		"-na":         `invalid argument "a" for "-n, --count" flag: want a whole number`,
		"--seed=-1":   `invalid argument "-1" for "--seed" flag: want a whole number, 0 or more`,
		"--scale=x":   `invalid argument "x" for "--scale" flag: want a number`,
		"--wait=3":    `invalid argument "3" for "--wait" flag: want a time with its unit, such as 500ms, 5s or 2m`,
		"--json=7":    `invalid argument "7" for "--json" flag: want true or false`,
		"--own=blue":  `invalid argument "blue" for "--own" flag: want red`,
		"--other":     "unknown flag: --other",
	} {
		err := Plain(flags.Parse([]string{arg}))
		if err == nil || err.Error() != want || strings.Contains(want, "strconv") {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}
