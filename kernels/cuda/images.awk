# Divides the PTX of all kernels among images, by their names, so that a generator loads only
# those that its model needs (images.go). Writes FOLDER/IMAGE.ptx for each image that has a
# kernel, and FOLDER/index: a line for each kernel, with its image.
# usage: awk -v folder=FOLDER -f images.awk ALL.ptx

# image_of returns the image of a kernel: that of its format, of its attention's head size, of mixed passes, or
# of experts, or the common one, which every model needs.
function image_of(kernel) {
	# Quantised weights too are multiplied with activations that are rounded to float16.
	if (kernel ~ /^reel_round_/) return "common"
	if (match(kernel, /_(q[0-9]_[0-9k]|iq4_xs|mxfp4|f8|g4_[0-9]+)(_|$)/)) {
		image = substr(kernel, RSTART + 1, RLENGTH - 1)
		sub(/_$/, "", image)
		return image
	}
	if (kernel ~ /_mixed[0-9]+$/) return kernel ~ /_f16_/ ? "mixed_f16" : "mixed"
	if (kernel ~ /_f16(_|$)/) return "f16"
	if (kernel ~ /^reel_(expert|route|choose)/) return "experts"
	if (kernel == "reel_attend_wide") return "attend_wide"
	if (match(kernel, /^reel_attend_(prefill_)?[0-9]+/)) {
		image = substr(kernel, 1, RLENGTH)
		sub(/.*_/, "attend_", image)
		return image
	}
	return "common"
}

# What comes before the first kernel is declared for all. A variable or function would be another one in each image.
!started && /^(\.visible |\.weak |\.extern )?\.(global|func|entry) / && !/^\.visible \.entry / {
	print FILENAME ":" FNR ": each image would have its own: " $0 >"/dev/stderr"
	exit 1
}
!started && !/^\.visible \.entry / {
	if (!/^\t\/\/ \.globl/) preamble = preamble $0 "\n"
	next
}
/^\.visible \.entry / {
	started = inside = 1
	kernel = $3
	sub(/\(.*/, "", kernel)
	image = image_of(kernel)
	file = folder "/" image ".ptx"
	if (!(image in begun)) printf "%s", preamble >file
	begun[image]
	print kernel, image >(folder "/index")
}
inside { print >file }
/^}/ { inside = 0 }
# Nothing but comments may stand between kernels: images would lack it.
!inside && !/^}/ && NF && $1 != "//" {
	print FILENAME ":" FNR ": neither a kernel nor before the first: " $0 >"/dev/stderr"
	exit 1
}
