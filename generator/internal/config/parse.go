package config

import (
	"errors"
	"fmt"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"reel.internal/reel/protocol"
)

// Each function returns the parser of one kind of setting. A parser stores the value in
// to; it refuses text that is not of its kind and leaves to as it was.

func anyText(to *string) func(string) error {
	return func(text string) error { *to = text; return nil }
}

func oneOf(to *string, names ...string) func(string) error {
	return func(text string) error {
		for _, name := range names {
			if text == name {
				*to = text
				return nil
			}
		}
		return fmt.Errorf("it must be %s or %s", strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
	}
}

// maxGPUs bounds the GPUs that share a model; it is that of kernels/device.
const maxGPUs = 8

// gpuList accepts numbers of GPUs with commas between them, each once.
func gpuList(to *[]int) func(string) error {
	return func(text string) error {
		var list []int
		for part := range strings.SplitSeq(text, ",") {
			if text == "" {
				break
			}
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 0 || n > maxGPUNumber || slices.Contains(list, n) {
				return fmt.Errorf("it must be numbers of GPUs, each once, with commas between them, as in 0,1")
			}
			list = append(list, n)
		}
		if len(list) > maxGPUs {
			return fmt.Errorf("%d GPUs are too many: a model is shared by %d at most", len(list), maxGPUs)
		}
		*to = list
		return nil
	}
}

// maxGPUNumber is the largest number of a GPU.
const maxGPUNumber = 1024

// DraftAuto is the value of --draft that leaves the choice to the kind of device. On a GPU a verify step takes hardly
// longer than a plain one, and a generator whose guesses are never right loses less than 1% (lookup, measured); on a
// processor a row costs nearly as much as a step.
const DraftAuto = "auto"

// drafter accepts the name of a drafter. Any other text is the place of a draft model.
func drafter(to *string) func(string) error {
	return func(text string) error {
		if text == "" || strings.ContainsRune(text, 0) {
			return fmt.Errorf("it must be %s, %s, %s or a draft model's directory", DraftAuto, protocol.DrafterOff,
				protocol.DrafterLookup)
		}
		*to = text
		return nil
	}
}

// givenBeside is before the place of a draft model in --draft whose guesses are replaced by those that requests
// predict: its passes take their time, and how many guesses are right can be set.
const givenBeside = protocol.DrafterGiven + ":"

// SetDraftModel replaces the place of the draft model.
func (o *Options) SetDraftModel(place string) {
	if o.GivenDrafts() {
		place = givenBeside + place
	}
	o.Draft = place
}

// GivenDrafts reports whether requests predict the drafts, also beside a draft model.
func (o Options) GivenDrafts() bool {
	return o.Draft == protocol.DrafterGiven || strings.HasPrefix(o.Draft, givenBeside)
}

// DraftModel returns the directory or GGUF file of the draft model or of the EAGLE-3 head, or "" if there is none.
func (o Options) DraftModel() string {
	switch o.Draft {
	case "", DraftAuto, protocol.DrafterOff, protocol.DrafterLookup, protocol.DrafterGiven:
		return ""
	}
	return strings.TrimPrefix(o.Draft, givenBeside)
}

func counts(to *[]int) func(string) error {
	return func(text string) error {
		if text == "auto" {
			*to = nil
			return nil
		}
		list, err := ParseCounts(text)
		if err != nil {
			return err
		}
		*to = append([]int{}, list...) // an empty list is not the default
		return nil
	}
}

func byteCount(to *int64) func(string) error {
	return func(text string) error {
		n, err := humanize.ParseBytes(text)
		if err != nil || n > 1<<60 {
			return errors.New("it must be a number of bytes, as in 1073741824 or 1GiB")
		}
		*to = int64(n)
		return nil
	}
}

// autoBytes is byteCount, or auto, which stores the number automatic.
func autoBytes(to *int64, automatic int64) func(string) error {
	return func(text string) error {
		if text == "auto" {
			*to = automatic
			return nil
		}
		if byteCount(to)(text) != nil {
			return errors.New("it must be auto or a number of bytes, as in 8589934592 or 8GiB")
		}
		return nil
	}
}

func number(to *int, high int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > high {
			return fmt.Errorf("it must be a whole number, 0 to %d", high)
		}
		*to = n
		return nil
	}
}

// modelNames matches the names that a model may be given.
var modelNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,95}$`)

// modelName accepts a name without spaces, or none.
func modelName(to *string) func(string) error {
	return func(text string) error {
		if text != "" && !modelNames.MatchString(text) {
			return errors.New("it must have 1 to 96 ASCII letters, digits or ._:/+@-, the first a letter or a digit")
		}
		*to = text
		return nil
	}
}

func duration(to *time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return errors.New("it must be a time, as in 90s or 10m, or 0")
		}
		*to = d
		return nil
	}
}

// autoDuration is duration, or auto, which stores the time automatic.
func autoDuration(to *time.Duration, automatic time.Duration) func(string) error {
	return func(text string) error {
		if text == "auto" {
			*to = automatic
			return nil
		}
		if duration(to)(text) != nil {
			return errors.New("it must be auto or a time, as in 10ms, or 0")
		}
		return nil
	}
}

// userIDs accepts a list of users, by uid or name, or none.
func userIDs(to *[]uint32) func(string) error {
	return func(text string) error {
		var list []uint32
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if known, err := user.Lookup(name); err == nil {
				name = known.Uid
			}
			uid, err := strconv.ParseUint(name, 10, 32)
			if err != nil {
				return fmt.Errorf("it must be users with commas between them, and there is no user %q", name)
			}
			list = append(list, uint32(uid))
		}
		*to = list
		return nil
	}
}

// metricsAddress accepts an address that only this machine reaches, or no address.
func metricsAddress(to *string) func(string) error {
	return func(text string) error {
		if text != "" {
			if _, _, err := MetricsAddress(text); err != nil {
				return err
			}
		}
		*to = text
		return nil
	}
}
