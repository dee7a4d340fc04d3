package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// draftFlag adds the flag for guesses.
func (a *app) draftFlag(flags *pflag.FlagSet) {
	flags.Var(drafts{&a.request.Draft}, "draft", "how many tokens a step may guess, of which right ones come faster: on, as "+
		"many as the generator does; off; or 0 to 7. The tokens are the same (default on)")
}

// drafts is an optional flag for guesses.
type drafts struct{ to **client.Draft }

// Set parses a word or a number. With Type and String it implements pflag.Value.
func (d drafts) Set(text string) error {
	parsed, e := protocol.ParseDraft(text)
	if e != nil {
		return fmt.Errorf("want on, off or a number, 0 to %d", protocol.MaxDrafts)
	}
	*d.to = parsed
	return nil
}

// Type returns the placeholder that help shows.
func (d drafts) Type() string { return "on|off|int" }

// String is empty unless the flag is given.
func (d drafts) String() string {
	if d.to == nil || *d.to == nil {
		return ""
	}
	return (*d.to).String()
}

// reset makes the flag optional again.
func (d drafts) reset() { *d.to = nil }

// draftRows describe what guesses tokens and how often it was right. There are none while the model loads, and for
// older generators that don't report it.
func draftRows(d protocol.Drafts) [][2]string {
	switch {
	case d.Drafter == "":
		return nil
	case d.Drafter == protocol.DrafterOff || d.Tokens == 0:
		return [][2]string{{"drafts", "off"}}
	}
	sum := d.Total()
	rows := [][2]string{{"drafts", fmt.Sprintf("%s, %d a step at most; %s of %s accepted%s", d.Drafter, d.Tokens,
		count(sum.Accepted), count(sum.Drafted), tokensAStep(sum))}}
	if len(d.Counts) == 0 {
		return rows
	}
	var list []string
	for _, c := range d.Counts {
		of := ""
		if c.Format {
			of = "of formats "
		}
		list = append(list,
			fmt.Sprintf("%s%d: %s of %s (%s)", of, c.Drafts, count(c.Accepted), count(c.Drafted), accepted(c)))
	}
	return append(rows, [2]string{"accepted", "by drafts of a step: " + strings.Join(list, ", ")})
}

// accepted returns the share of drafts that were accepted.
func accepted(c protocol.DraftCount) string {
	return fmt.Sprintf("%.0f%%", 100*float64(c.Accepted)/float64(max(1, c.Drafted)))
}

// tokensAStep says how many tokens a step with drafts gave a request: the accepted ones, and one more.
func tokensAStep(c protocol.DraftCount) string {
	if c.Steps == 0 {
		return ""
	}
	return fmt.Sprintf(", %.2f tokens a step with drafts", 1+float64(c.Accepted)/float64(c.Steps))
}

// stood shows the guesses between two views.
func stood(now, then protocol.Drafts) string {
	sum, before := now.Total(), then.Total()
	sum.Steps, sum.Drafted, sum.Accepted = sum.Steps-before.Steps, sum.Drafted-before.Drafted, sum.Accepted-before.Accepted
	switch {
	case now.Drafter == protocol.DrafterOff || now.Tokens == 0:
		return "off"
	case sum.Drafted == 0:
		return now.Drafter + ": none"
	}
	return fmt.Sprintf("%s: %s of %s accepted%s", now.Drafter, accepted(sum), count(sum.Drafted), tokensAStep(sum))
}
