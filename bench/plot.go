package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Chart is a chart of figures.
type Chart struct {
	Title, X, Y string
	Series      []Series
	Marks       []float64 // events, on the x axis
	MarksAre    string    // name of the events
	Log         bool      // the y axis is logarithmic
	Bars        []Bar     // instead of series
}

// Bar is a bar of a chart.
type Bar struct {
	Name string
	Y    float64
}

// Series is a series of points, joined by a line unless Dots is set.
type Series struct {
	Name string
	X, Y []float64
	Dots bool
}

// add adds a series unless it is empty.
func (c *Chart) add(s Series) {
	if len(s.X) > 0 {
		c.Series = append(c.Series, s)
	}
}

const (
	chartWidth  = 7 * vg.Inch
	chartHeight = 3.6 * vg.Inch
	legendRoom  = 0.08 // share of the height for each series' name

	// fontFamily names fonts of the same widths as Liberation Sans, by which text is laid out:
	// a viewer takes the first that it has.
	fontFamily = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"
)

// Draw writes charts, one below the other, to an SVG or PNG file; the name's ending decides.
// Errors are ErrOptions for another ending or no charts, and those of the file.
func Draw(path string, charts []Chart) error {
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	if format != "svg" && format != "png" {
		return fmt.Errorf("%w: %s: a plot is .svg or .png", ErrOptions, path)
	}
	image, err := render(format, charts)
	if err != nil {
		return err
	}
	return os.WriteFile(path, image, 0o644)
}

// render returns the image of charts, as SVG or PNG.
func render(format string, charts []Chart) ([]byte, error) {
	if len(charts) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to plot", ErrOptions)
	}
	canvas, err := draw.NewFormattedCanvas(chartWidth, chartHeight*vg.Length(len(charts)), format)
	if err != nil {
		return nil, err
	}
	tiles := draw.Tiles{
		Cols: 1, Rows: len(charts), PadTop: vg.Points(6), PadBottom: vg.Points(6),
		PadLeft: vg.Points(6), PadRight: vg.Points(18), PadY: vg.Points(10),
	}
	for i := range charts {
		p, err := charts[i].plot()
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", charts[i].Title, err)
		}
		p.Draw(tiles.At(draw.New(canvas), 0, i))
	}
	var image bytes.Buffer
	_, err = canvas.WriteTo(&image)
	return bytes.ReplaceAll(image.Bytes(), []byte("font-family:Liberation Sans"), []byte(fontFamily)), err
}

// plot returns the chart's layout.
func (c *Chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Left, p.Legend.YOffs = true, true, -vg.Points(4)
	setFonts(p)
	p.Add(plotter.NewGrid())
	if len(c.Bars) > 0 {
		return p, c.plotBars(p)
	}
	for i, s := range c.Series {
		if err := s.plot(p, i); err != nil {
			return nil, err
		}
	}
	p.X.Min = min(p.X.Min, 0)
	if c.Log {
		c.scaleLog(p)
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*(1+legendRoom*float64(len(c.Series)))
	}
	return p, c.plotMarks(p)
}

// setFonts makes all text of a chart sans-serif.
func setFonts(p *plot.Plot) {
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.Legend.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Variant = "Sans"
	}
}

// scaleLog makes the y axis logarithmic, from 1 to ten times the greatest value: the legend takes
// the room above.
func (c *Chart) scaleLog(p *plot.Plot) {
	p.Y.Scale, p.Y.Min, p.Y.Max = plot.LogScale{}, min(1, p.Y.Min), 10*p.Y.Max
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for decade := 1.0; decade <= high; decade *= 10 {
			for _, digit := range []float64{1, 2, 5} {
				if v := decade * digit; v >= low && v <= high {
					ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
				}
			}
		}
		return ticks
	})
}

// plotBars draws each bar with its value above it.
func (c *Chart) plotBars(p *plot.Plot) error {
	p.Y.Min = 0
	var names []string
	for i, b := range c.Bars {
		bar, err := plotter.NewBarChart(plotter.Values{b.Y}, vg.Points(60))
		if err != nil {
			return err
		}
		label, err := plotter.NewLabels(plotter.XYLabels{
			XYs: plotter.XYs{{X: float64(i), Y: b.Y}}, Labels: []string{fmt.Sprintf("%.0f", b.Y)},
		})
		if err != nil {
			return err
		}
		label.TextStyle[0].Font.Variant, label.TextStyle[0].XAlign = "Sans", text.XCenter
		label.Offset.Y = vg.Points(3)
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), plotutil.Color(i), 0
		p.Add(bar, label)
		names = append(names, b.Name)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max, p.Y.Max = -0.5, float64(len(c.Bars))-0.5, p.Y.Max*(1+legendRoom)
	return nil
}

// plot adds the series to p in the i-th colour.
func (s *Series) plot(p *plot.Plot, i int) error {
	points := make(plotter.XYs, len(s.X))
	for k := range points {
		points[k].X, points[k].Y = s.X[k], s.Y[k]
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
	line.Width, dots.Radius, dots.Shape = vg.Points(1.2), vg.Points(2), draw.CircleGlyph{}
	if s.Dots {
		p.Add(dots)
		p.Legend.Add(s.Name, dots)
		return nil
	}
	p.Add(line, dots)
	p.Legend.Add(s.Name, line, dots)
	return nil
}

// plotMarks draws a vertical line at each mark.
func (c *Chart) plotMarks(p *plot.Plot) error {
	for i, x := range c.Marks {
		line, err := plotter.NewLine(plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		line.Color, line.Width = color.Gray{Y: 170}, vg.Points(0.6)
		p.Add(line)
		if i == 0 {
			p.Legend.Add(c.MarksAre, line)
		}
	}
	return nil
}
