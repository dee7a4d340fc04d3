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
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Chart is a chart of figures.
type Chart struct {
	Title, X, Y string
	Series      []Series
	Marks       []float64 // events, on the x axis
	MarksAre    string    // name of the events
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
		PadLeft: vg.Points(6), PadRight: vg.Points(12), PadY: vg.Points(10),
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
	return image.Bytes(), err
}

// plot returns the chart's layout.
func (c *Chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, s := range c.Series {
		if err := s.plot(p, i); err != nil {
			return nil, err
		}
	}
	p.Y.Min = 0
	if err := c.plotMarks(p); err != nil {
		return nil, err
	}
	p.X.Min, p.Y.Max = min(p.X.Min, 0), p.Y.Max*(1+legendRoom*float64(len(c.Series)))
	return p, nil
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
