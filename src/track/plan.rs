//! Where links run, and which zones have geometry: those in which at least three links cross.
//!
//! *Crossing*: some place lies in the ellipses of at least three links of the zone (the way over that place is at most
//! `ellipse_excess_m` longer than the direct one), and two of these links differ in direction by at least 25 degrees.
//! Zones with geometry that share links make one area: one plane, one image.

/// How far the directions of two links must differ to cross, as the sine of the angle (25 degrees).
const CROSSING_SINE: f64 = 0.422_618;
/// Most cells of an image.
const MOST_CELLS: usize = 1024;
/// A link shorter than this has no direction, metres.
const SHORTEST_M: f64 = 0.1;

/// What the pipeline knows of a link: the zones that its board watches, and where it runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkPlace {
    /// Indices of the zones.
    pub zones: Vec<usize>,
    /// Places of the board and of the sender in metres, in a plane common to all links of a zone; `None` where one of
    /// them is not known. Values that are no numbers count as not known.
    pub ends_m: Option<[[f64; 2]; 2]>,
}

impl LinkPlace {
    /// Ends that can be used.
    pub(super) fn ends(&self) -> Option<[[f64; 2]; 2]> {
        self.ends_m.filter(|ends| {
            ends.iter().flatten().all(|v| v.is_finite() && v.abs() < 1e4) && distance(ends[0], ends[1]) >= SHORTEST_M
        })
    }
}

pub(super) fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

/// Does the ellipse of a link cover `at`?
pub(super) fn covers(ends: &[[f64; 2]; 2], at: [f64; 2], excess_m: f64) -> bool {
    distance(ends[0], at) + distance(at, ends[1]) - distance(ends[0], ends[1]) <= excess_m
}

/// Do enough of these links cross at `at`?
pub(super) fn crossing(ends: &[[[f64; 2]; 2]], at: [f64; 2], excess_m: f64) -> bool {
    let mut covering = 0;
    let mut different = false;
    let direction = |e: &[[f64; 2]; 2]| {
        let length = distance(e[0], e[1]);
        [0, 1].map(|k| (e[1][k] - e[0][k]) / length)
    };
    let mut first: Option<[f64; 2]> = None;
    for link in ends.iter().filter(|e| covers(e, at, excess_m)) {
        covering += 1;
        let d = direction(link);
        match first {
            None => first = Some(d),
            Some(f) => different |= (f[0] * d[1] - f[1] * d[0]).abs() >= CROSSING_SINE,
        }
    }
    covering >= 3 && different
}

/// A grid over the box of some links.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) cells: Vec<[f64; 2]>,
    pub(super) low_m: [f64; 2],
    pub(super) high_m: [f64; 2],
}

impl Grid {
    /// Cells `step_m` apart, farther where there would be too many.
    pub(super) fn over(ends: &[[[f64; 2]; 2]], step_m: f64) -> Self {
        let (mut low_m, mut high_m) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        for point in ends.iter().flatten() {
            for k in 0..2 {
                low_m[k] = low_m[k].min(point[k]);
                high_m[k] = high_m[k].max(point[k]);
            }
        }
        let size = [0, 1].map(|k| (high_m[k] - low_m[k]).max(0.0));
        let mut step = step_m;
        let count = |step: f64| size.map(|s| (s / step).floor() as usize + 1);
        while count(step).iter().product::<usize>() > MOST_CELLS {
            step *= 1.05;
        }
        let [nx, ny] = count(step);
        // Centred in the box.
        let first = [0, 1].map(|k| low_m[k] + (size[k] - (count(step)[k] - 1) as f64 * step) / 2.0);
        let cells =
            (0..nx * ny).map(|i| [first[0] + (i % nx) as f64 * step, first[1] + (i / nx) as f64 * step]).collect();
        Self { cells, low_m, high_m }
    }
}

/// An area: zones with geometry that share links.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AreaPlan {
    pub(super) zones: Vec<usize>,
    /// Indices of the links.
    pub(super) links: Vec<usize>,
}

/// The areas of a plan of `zones` zones; the links by their places.
pub(super) fn areas(zones: usize, places: &[&LinkPlace], step_m: f64, excess_m: f64) -> Vec<AreaPlan> {
    let of_zone = |zone: usize| {
        (0..places.len()).filter(move |l| places[*l].zones.contains(&zone) && places[*l].ends().is_some())
    };
    let with_geometry: Vec<usize> = (0..zones)
        .filter(|zone| {
            let ends: Vec<_> = of_zone(*zone).filter_map(|l| places[l].ends()).collect();
            ends.len() >= 3 && Grid::over(&ends, step_m).cells.iter().any(|at| crossing(&ends, *at, excess_m))
        })
        .collect();
    let mut areas: Vec<AreaPlan> = Vec::new();
    for zone in with_geometry {
        let mut area = AreaPlan { zones: vec![zone], links: of_zone(zone).collect() };
        // Whatever shares a link with it joins it.
        while let Some(i) = areas.iter().position(|a| a.links.iter().any(|l| area.links.contains(l))) {
            let other = areas.remove(i);
            area.zones.extend(other.zones);
            area.links.extend(other.links);
            area.links.sort_unstable();
            area.links.dedup();
        }
        area.zones.sort_unstable();
        areas.push(area);
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(zones: &[usize], a: [f64; 2], b: [f64; 2]) -> LinkPlace {
        LinkPlace { zones: zones.to_vec(), ends_m: Some([a, b]) }
    }

    #[test]
    fn three_links_that_cross_make_geometry_and_parallel_ones_do_not() {
        let star = [
            place(&[0], [0.0, 0.0], [4.0, 4.0]),
            place(&[0], [0.0, 4.0], [4.0, 0.0]),
            place(&[0], [2.0, 0.0], [2.0, 4.0]),
        ];
        assert_eq!(areas(1, &star.iter().collect::<Vec<_>>(), 0.25, 0.5).len(), 1);
        assert!(areas(1, &star[..2].iter().collect::<Vec<_>>(), 0.25, 0.5).is_empty(), "two are not enough");
        let parallel: Vec<_> =
            (0..4).map(|i| place(&[0], [0.0, 0.1 * f64::from(i)], [4.0, 0.1 * f64::from(i)])).collect();
        assert!(areas(1, &parallel.iter().collect::<Vec<_>>(), 0.25, 0.5).is_empty());
        let far: Vec<_> = (0..3)
            .map(|i| place(&[0], [10.0 * f64::from(i), 0.0], [10.0 * f64::from(i) + 1.0, f64::from(i)]))
            .collect();
        assert!(areas(1, &far.iter().collect::<Vec<_>>(), 0.25, 0.5).is_empty(), "they never meet");
        let mut blind = star.clone();
        blind[2].ends_m = None;
        assert!(areas(1, &blind.iter().collect::<Vec<_>>(), 0.25, 0.5).is_empty());
        blind[2].ends_m = Some([[f64::NAN, 0.0], [2.0, 4.0]]);
        assert!(areas(1, &blind.iter().collect::<Vec<_>>(), 0.25, 0.5).is_empty());
    }

    #[test]
    fn zones_that_share_links_share_a_plane_and_others_do_not() {
        let star = |zones: &[usize]| {
            [
                place(zones, [0.0, 0.0], [4.0, 4.0]),
                place(zones, [0.0, 4.0], [4.0, 0.0]),
                place(zones, [2.0, 0.0], [2.0, 4.0]),
            ]
        };
        // Zones 0 and 1 on two floors, at the same coordinates; zone 2 shares the links of zone 1; zone 3 has none.
        let all: Vec<_> = star(&[0]).into_iter().chain(star(&[1, 2])).collect();
        let found = areas(4, &all.iter().collect::<Vec<_>>(), 0.25, 0.5);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].zones.as_slice(), found[0].links.as_slice()), (&[0usize][..], &[0usize, 1, 2][..]));
        assert_eq!((found[1].zones.as_slice(), found[1].links.as_slice()), (&[1usize, 2][..], &[3usize, 4, 5][..]));
    }

    #[test]
    fn a_large_plan_gets_a_coarser_grid() {
        let grid = Grid::over(&[[[0.0, 0.0], [30.0, 20.0]]], 0.1);
        assert!(grid.cells.len() <= MOST_CELLS && grid.cells.len() > 700, "{}", grid.cells.len());
    }
}
