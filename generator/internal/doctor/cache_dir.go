package doctor

import (
	"fmt"

	"reel.internal/reel/protocol"
)

// cacheDir reports the files of KV pages of a running generator.
func cacheDir(status *protocol.Status) []Finding {
	if !running(status) {
		return nil
	}
	const check = "cache dir"
	d := status.Disk
	has := fmt.Sprintf("%d pages, %s of %s", d.Pages, size(d.Bytes), size(d.MaxBytes))
	switch {
	case d.State == protocol.DiskOpening:
		return []Finding{note(check, "its pages are not used yet",
			"after a start all weights are read again first, 256 MiB a second")}
	case d.State == protocol.DiskOff:
		return []Finding{warning(check, "it is not used",
			"the generator's log has the cause: mend it and restart the generator")}
	case d.State == protocol.DiskUsed && d.Errors > 0:
		return []Finding{note(check, fmt.Sprintf("%s; %d were damaged and are deleted", has, d.Errors),
			"pages are damaged by a loss of power; if this goes on, check the disk")}
	case d.State == protocol.DiskUsed:
		return []Finding{ok(check, has)}
	}
	return nil
}
