package kernels

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// layoutFile asserts in C++ the layout that arguments of kernels have in Go. It is compiled
// with the kernels.
const layoutFile = "cuda/layout.cuh"

// argument is a struct of C++, and the struct that mirrors it in Go.
type argument struct {
	cpp    string
	mirror any
	rename string // fields with another name in C++: "go:cpp ..."
	sm90   bool   // whether C++ has it only for GPUs of 9.0a
}

// arguments are all structs that launches pass to kernels, and the structs that they contain.
var arguments = []argument{
	{cpp: "AcceptArgs", mirror: acceptArgs{}, rename: "t:T"},
	{cpp: "Activations", mirror: activations{}},
	{cpp: "AddNormArgs", mirror: addNormArgs{}},
	{cpp: "PerLayerGateArgs", mirror: perLayerGateArgs{}},
	{cpp: "Ahead", mirror: aheadArgs{}},
	{cpp: "AttendArgs", mirror: attendArgs{}, rename: "t:T"},
	{cpp: "AttendHandingArgs<AttendArgs>", mirror: attendHandingArgs[attendArgs]{}},
	{cpp: "AttendHandingArgs<AttendLogitsArgs<AttendArgs>>", mirror: attendHandingArgs[attendLogitsArgs[attendArgs]]{}},
	{cpp: "AttendLatentArgs", mirror: attendLatentArgs{}, rename: "t:T"},
	{cpp: "AttendSpreadArgs<AttendArgs>", mirror: attendSpreadArgs[attendArgs]{}},
	{cpp: "BeginArgs", mirror: beginArgs{}},
	{cpp: "AttendLogits", mirror: attendLogits{}},
	{cpp: "AttendLogitsArgs<AttendArgs>", mirror: attendLogitsArgs[attendArgs]{}},
	{cpp: "ChosenArgs", mirror: chosenArgs{}},
	{cpp: "CodesArgs<ExpertDown>", mirror: codesArgs[expertDownArgs]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<ExpertGateUp>", mirror: codesArgs[expertGateUpArgs]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<GateUp>", mirror: codesArgs[gateUpArgs]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Head>", mirror: codesArgs[headArgs]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Projection>", mirror: codesArgs[projectionArgs]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Tagged<GateUp>>", mirror: codesArgs[taggedArgs[gateUpArgs]]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Tagged<Head>>", mirror: codesArgs[taggedArgs[headArgs]]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Tagged<Projection>>", mirror: codesArgs[taggedArgs[projectionArgs]]{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<Tagged<QKVApart>>", mirror: codesArgs[taggedArgs[qkvArgs]]{}, rename: "atOnce:at_once"},
	{cpp: "CodesHandover", mirror: codesHandoverArgs{}, rename: "atOnce:at_once"},
	{cpp: "CodesArgs<QKV>", mirror: codesArgs[qkvArgs]{}, rename: "atOnce:at_once"},
	{cpp: "ChoiceArgs", mirror: choiceArgs{}},
	{cpp: "ChooseArgs", mirror: chooseArgs{}},
	{cpp: "CopyPageArgs", mirror: copyPageArgs{}},
	{cpp: "CaptureArgs", mirror: captureArgs{}},
	{cpp: "DraftRowsArgs", mirror: draftRowsArgs{}},
	{cpp: "JoinArgs", mirror: joinArgs{}},
	{cpp: "KeepArgs", mirror: keepArgs{}},
	{cpp: "RecentArgs", mirror: recentArgs{}},
	{cpp: "EmbedArgs", mirror: embedArgs{}},
	{cpp: "ExchangeArgs", mirror: exchangeArgs{}, rename: "partCols:part_cols"},
	{cpp: "ExchangePacketsArgs", mirror: exchangePacketsArgs{}},
	{cpp: "ExpertDownArgs", mirror: expertDownArgs{}},
	{cpp: "ExpertGateUpArgs", mirror: expertGateUpArgs{}},
	{cpp: "ExpertSumArgs", mirror: expertSumArgs{}},
	{cpp: "ExpertSumSpreadArgs", mirror: expertSumSpreadArgs{}},
	{cpp: "FillArgs", mirror: fillArgs{}},
	{cpp: "EmbedTaggedArgs", mirror: embedTaggedArgs{}},
	{cpp: "GateUpArgs", mirror: gateUpArgs{}},
	{cpp: "GatherArgs", mirror: gatherArgs{}},
	{cpp: "GivenArgs", mirror: givenArgs{}, rename: "t:T"},
	{cpp: "GroupPlacesArgs", mirror: groupPlacesArgs{}},
	{cpp: "GroupedArgs<GroupedDown>", mirror: groupedArgs[groupedDownArgs]{}},
	{cpp: "GroupedArgs<GroupedGateUp>", mirror: groupedArgs[groupedGateUpArgs]{}},
	{cpp: "GroupedDownArgs", mirror: groupedDownArgs{}},
	{cpp: "GroupedGateUpArgs", mirror: groupedGateUpArgs{}},
	{cpp: "GroupArgs", mirror: groupArgs{}, rename: "t:T"},
	{cpp: "Handover", mirror: handoverArgs{}},
	{cpp: "HeadArgs", mirror: headArgs{}},
	{cpp: "HeadProductArgs", mirror: headProductArgs{}, rename: "t:T"},
	{cpp: "LatentArgs", mirror: latentArgs{}},
	{cpp: "LookupArgs", mirror: lookupArgs{}},
	{cpp: "ManyArgs<GateUp>", mirror: manyArgs[gateUpArgs]{}},
	{cpp: "ManyArgs<Head>", mirror: manyArgs[headArgs]{}},
	{cpp: "ManyArgs<Projection>", mirror: manyArgs[projectionArgs]{}},
	{cpp: "ManyArgs<QKV>", mirror: manyArgs[qkvArgs]{}},
	{cpp: "MixedArgs<GateUp>", mirror: mixedArgs[gateUpArgs]{}},
	{cpp: "MixedArgs<Projection>", mirror: mixedArgs[projectionArgs]{}},
	{cpp: "MixedArgs<QKV>", mirror: mixedArgs[qkvArgs]{}},
	{cpp: "PlacesArgs", mirror: placesArgs{}},
	{cpp: "PackCodesArgs", mirror: packCodesArgs{}},
	{cpp: "PackArgs", mirror: packArgs{}},
	{cpp: "Packets", mirror: packetsArgs{}},
	{cpp: "ProjectionArgs", mirror: projectionArgs{}},
	{cpp: "ProposeArgs", mirror: proposeArgs{}},
	{cpp: "QKPostArgs", mirror: qkPostArgs{}, rename: "t:T"},
	{cpp: "QKVArgs", mirror: qkvArgs{}},
	{cpp: "ReadArgs", mirror: readArgs{}},
	{cpp: "RestoreArgs", mirror: restoreArgs{}},
	{cpp: "RouteArgs", mirror: routeArgs{}, rename: "t:T"},
	{cpp: "ExchangeRoundedArgs", mirror: exchangeRoundedArgs{}},
	{cpp: "RoundedParts", mirror: roundedParts{}, rename: "squaresAt:squares_at"},
	{cpp: "RoundedPacketsArgs", mirror: roundedPacketsArgs{}},
	{cpp: "RoundPlacesArgs", mirror: roundPlacesArgs{}},
	{cpp: "RoundArgs", mirror: roundArgs{}},
	{cpp: "RoundCodesArgs", mirror: roundCodesArgs{}},
	{cpp: "RoundedInput", mirror: roundedInput{}},
	{cpp: "SampleArgs", mirror: sampleArgs{}},
	{cpp: "SlicePlan", mirror: slicePlan{}},
	{cpp: "SoftcapArgs", mirror: softcapArgs{}},
	{cpp: "Spread", mirror: spreadTo{}, rename: "partCols:part_cols"},
	{cpp: "SpreadArgs<ExpertDown>", mirror: spreadArgs[expertDownArgs]{}},
	{cpp: "SpreadArgs<ExpertGateUpOne>", mirror: spreadArgs[expertGateUpArgs]{}},
	{cpp: "SpreadCodesArgs<ExpertDown>", mirror: spreadArgs[codesArgs[expertDownArgs]]{}},
	{cpp: "SpreadCodesArgs<ExpertGateUpOne>", mirror: spreadArgs[codesArgs[expertGateUpArgs]]{}},
	{cpp: "SpreadArgs<GateUp>", mirror: spreadArgs[gateUpArgs]{}},
	{cpp: "SpreadArgs<Projection>", mirror: spreadArgs[projectionArgs]{}},
	{cpp: "StageArgs", mirror: stageArgs{}, rename: "t:T n:N"},
	{cpp: "StreamKArgs<GateUp>", mirror: streamKArgs[gateUpArgs]{}},
	{cpp: "StreamKArgs<Projection>", mirror: streamKArgs[projectionArgs]{}},
	{cpp: "StreamKArgs<QKV>", mirror: streamKArgs[qkvArgs]{}},
	{cpp: "TaggedArgs<GateUp>", mirror: taggedArgs[gateUpArgs]{}},
	{cpp: "TaggedArgs<Head>", mirror: taggedArgs[headArgs]{}},
	{cpp: "TaggedArgs<Projection>", mirror: taggedArgs[projectionArgs]{}},
	{cpp: "TaggedArgs<QKVApart>", mirror: taggedArgs[qkvArgs]{}},
	{cpp: "TaggedDownArgs<CodesArgs<ExpertDown>>", mirror: taggedDownArgs[codesArgs[expertDownArgs]]{}},
	{cpp: "TaggedDownArgs<ExpertDownArgs>", mirror: taggedDownArgs[expertDownArgs]{}},
	{cpp: "TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>>", mirror: taggedGatesArgs[codesArgs[expertGateUpArgs]]{}, sm90: true},
	{cpp: "TaggedGatesArgs<ExpertGateUpArgs>", mirror: taggedGatesArgs[expertGateUpArgs]{}},
	{cpp: "TaggedRouteArgs", mirror: taggedRouteArgs{}},
	{cpp: "Tags", mirror: tagsArgs{}},
	{cpp: "VectorArgs", mirror: vectorArgs{}},
	{cpp: "WidthNormsArgs", mirror: widthNormsArgs{}},
	{cpp: "WgmmaArgs<GateUp>", mirror: wgmmaArgs[gateUpArgs]{}, sm90: true},
	{cpp: "WgmmaArgs<Head>", mirror: wgmmaArgs[headArgs]{}, sm90: true},
	{cpp: "WgmmaArgs<Projection>", mirror: wgmmaArgs[projectionArgs]{}, sm90: true},
	{cpp: "WgmmaArgs<QKV>", mirror: wgmmaArgs[qkvArgs]{}, sm90: true},
}

// onRanks are those of RankTags, which has a base.
var onRanks = []argument{
	{cpp: "RankTags", mirror: rankTagsArgs{}},
	{cpp: "RankArgs<GateUp>", mirror: rankArgs[gateUpArgs]{}},
	{cpp: "RankArgs<Head>", mirror: rankArgs[headArgs]{}},
	{cpp: "RankArgs<Projection>", mirror: rankArgs[projectionArgs]{}},
	{cpp: "RankArgs<QKVApart>", mirror: rankArgs[qkvArgs]{}},
	{cpp: "AttendRankArgs", mirror: attendRankArgs{}},
	{cpp: "RankRouteArgs", mirror: rankRouteArgs{}},
}

// A launch passes its arguments by value, so the structs of Go and C++ must have the same
// layout. This test holds Go's to the file, and the compiler of the kernels holds C++'s.
func TestArgumentsHaveTheLayoutOfCUDA(t *testing.T) {
	want := layout()
	if os.Getenv("REEL_WRITE_LAYOUT") != "" {
		if err := os.WriteFile(layoutFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(layoutFile)
	if err != nil {
		t.Skipf("this test wants the sources of the kernels: %v", err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the layout in Go: run this test with REEL_WRITE_LAYOUT=1, and compile the kernels",
			layoutFile)
	}
}

// layout returns the text of layoutFile.
func layout() string {
	var b, sm90 strings.Builder
	b.WriteString(`// The layout of kernels' arguments in Go, as args_test.go writes it. The Makefile includes this
// file after all kernels, so that a field that moved stops the build.
#pragma once
#include <cstddef>

#define REEL_SIZE(type, bytes) static_assert(sizeof(type) == bytes, "in Go it has " #bytes " bytes")
#define REEL_FIELD(type, field, at) static_assert(offsetof(type, field) == at, "in Go it is at " #at)

`)
	fmt.Fprintf(&b, "static_assert(PLACED_ROWS == %d, \"in Go: placedRows\");\n", placedRows)
	for _, a := range arguments {
		out := &b
		if a.sm90 {
			out = &sm90
		}
		v := reflect.TypeOf(a.mirror)
		fmt.Fprintf(out, "\nREEL_SIZE(%s, %d);\n", a.cpp, v.Size())
		a.fields(out, v, 0)
	}
	// offsetof is not defined for a struct with fields in its base.
	deferred := reflect.TypeOf(attendDeferredArgs{})
	fmt.Fprintf(&b, "\nREEL_SIZE(AttendDeferredArgs, %d);\n", deferred.Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendLogitsArgs<AttendDeferredArgs>, %d);\n",
		reflect.TypeOf(attendLogitsArgs[attendDeferredArgs]{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendSpreadArgs<AttendDeferredArgs>, %d);\n",
		reflect.TypeOf(attendSpreadArgs[attendDeferredArgs]{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendHandingArgs<AttendDeferredArgs>, %d);\n",
		reflect.TypeOf(attendHandingArgs[attendDeferredArgs]{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendHandingArgs<AttendLogitsArgs<AttendDeferredArgs>>, %d);\n",
		reflect.TypeOf(attendHandingArgs[attendLogitsArgs[attendDeferredArgs]]{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendTaggedArgs, %d);\n", reflect.TypeOf(attendTaggedArgs{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendLogitsArgs<AttendTaggedArgs>, %d);\n",
		reflect.TypeOf(attendLogitsArgs[attendTaggedArgs]{}).Size())
	fmt.Fprintf(&b, "REEL_SIZE(AttendFromArgs, %d);\n", reflect.TypeOf(attendFromArgs{}).Size())
	fmt.Fprintf(&b, "static_assert(sizeof(Tags) == %d, \"away follows the base\");\n", reflect.TypeOf(tagsArgs{}).Size())
	for _, ranks := range onRanks {
		fmt.Fprintf(&b, "REEL_SIZE(%s, %d);\n", ranks.cpp, reflect.TypeOf(ranks.mirror).Size())
	}
	fmt.Fprintf(&b, "static_assert(sizeof(AttendArgs) == %d, \"post and earliest follow the base\");\n", deferred.Field(1).Offset)
	fmt.Fprintf(&sm90, "REEL_SIZE(RankGatesArgs, %d);\nREEL_SIZE(RankDownArgs, %d);\n",
		reflect.TypeOf(rankGatesArgs{}).Size(), reflect.TypeOf(rankDownArgs{}).Size())
	fmt.Fprintf(&b, "\n#ifdef __CUDA_ARCH_FEAT_SM90_ALL%s#endif\n", sm90.String())
	return b.String()
}

// fields writes an assertion for each field of v, which begins at byte at.
func (a argument) fields(b *strings.Builder, v reflect.Type, at uintptr) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Type == reflect.TypeOf(slotArgs{}) { // C++ has its fields without a struct of their own
			argument{cpp: a.cpp, rename: "token:last"}.fields(b, f.Type, at+f.Offset)
			continue
		}
		fmt.Fprintf(b, "REEL_FIELD(%s, %s, %d);\n", a.cpp, a.name(f.Name), at+f.Offset)
	}
}

// name returns a field's name in C++.
func (a argument) name(field string) string {
	for pair := range strings.FieldsSeq(a.rename) {
		if from, to, _ := strings.Cut(pair, ":"); from == field {
			return to
		}
	}
	if field == "_" {
		return "unused"
	}
	return field
}
