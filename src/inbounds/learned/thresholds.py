"""Every number by which `fit` chooses; the rules are in rules.py.

SIGMAS: displacement of held-out samples before they are projected. Halved, rounding and noise hide the dimension; doubled,
  curvature does.
ABOVE_NOISE: least displacement in standard deviations of the noise. Halved, noise is taken for thickness; doubled, curvature
  hides the dimension.
SLACK - 1: risks that count as equal. Halved, the simpler of two equals loses by chance; doubled, a set passes that has one
  dimension of twenty too many.
TIE: standard errors of a paired difference below which candidates are equal: a test at the level of 5 %. Halved, the simpler
  of two equals loses by chance; doubled, hulls win over regions with bays. For regions it was 3 until a triangle with outliers
  was seen.
GAIN: dimensions that a thinner set must save. Halved, curves through a region win by chance; doubled, noisy equations lose.
NOISY: noise that a manifold may have, of the samples' standard deviation per coordinate. Halved, noise of 0.1 makes regions;
  doubled, normal clouds (0.7) become spheres.
SHELL, SPARSE: the outermost share of the volume, and how dense it must be for a sharp boundary. Halved, normal clouds get
  boundaries; doubled, balls with noise lose theirs.
OFF: distance of an outlier from its neighbours' graph, in medians. Halved, tails of normal noise are dropped; doubled, outliers
  near the set stay.
ISOLATED: distance of an outlier's neighbours, in those of their neighbours. Halved, corners of regions are dropped; doubled,
  outliers near the region stay.
ROUGH: distance from the neighbours' graphs, of their radius, above which these do not describe the set. Halved, outliers of
  noisy sets stay; doubled, samples of sets of many dimensions are dropped.
TOGETHER: distance of samples from the graphs through their neighbours, of the neighbours' distance, below which they form a set
  of their own. Halved, parts with few samples are lost; doubled, clouds of outliers are kept.
TAIL: the largest residual of equations, of the one that is expected of normal noise, up to which nobody is an outlier. Halved,
  the search goes on, which only costs time; doubled, outliers near the set stay.
FEW_DROPPED: share of outliers above which a test is not believed. MOST_DROPPED: above which the user is asked to look. Halved,
  real outliers stay; doubled, parts of the set are lost.
CROWDED: how much emptier than chance a ball must be to be a hole (log of the odds). Halved, chance makes holes; doubled, holes
  are missed.
LEVEL: probability with which chance alone may open a hole in an alpha shape. Halved or doubled, its balls change by 3 %.
LOUD: noise, in displacements, above which the lowest risk decides and not the nearness to samples; so it does above the distance
  of held-out samples from the nearest other, since a set may then follow the noise. Halved, clean fits of high
  degree lose to simple ones; doubled, sets that follow the noise win.
CROWDING: spacing of isolated samples, of that of points anywhere, below which they are a part of a region. Halved, such parts are
  lost; doubled, outliers are kept.
ROUNDS: of dropping isolated samples; the loop ends by itself where nobody is isolated any more.
SEEN: radius of a ball inside a region, of the region's size, that may be empty by chance: above it a warning says that holes may
  be missed. The radius follows from CROWDED and the number of samples. Halved, most regions with fewer than a thousand samples
  are doubted; doubled, hardly any is.
SHORT: share of held-out samples outside of an alpha shape. Halved, chance is a doubt; doubled, shapes that are too small are not.
QUARTER: noise, of the reach, above which the answer is doubtful. Halved, good fits are doubted; doubled, bad ones are not.
ALIKE: noise that equations leave, of that which neighbourhoods show, up to which nothing is missing. Halved, all degrees are
  tried, which only costs time; doubled, degrees are not tried that a set with fine structure needs.
BEYOND: share of projections far from all samples, or not at the nearest point, that is worth a warning. Halved, chance is;
  doubled, spurious parts are not.
SPREAD: quantiles of the distances whose ratio tells normal noise from a filled layer. Halved, the ratio is the same, of fewer
  samples; doubled they are none.
RIM: probability with which chance leaves a sample at a rim so much room, below which it is a stray once there are strays.
  Halved, strays near the region stay; doubled, more of the rim is lost.
CLOUD: distance of neighbours, of that around a stray, from which samples near it are strays as well. Halved, the region's rim
  goes with them; doubled, strays that hide each other stay.
MOST_SIGMA: largest displacement, of the size. Halved, noise of 0.1 is taken for thickness; doubled, the nearest point is another.
RARE: how much farther apart than at a flat rim samples lie where none is left out as noise. Halved, noise is kept; doubled, rare
  parts of a region are lost.
MIDDLE, MIXED, SMALLEST (pieces.py): what two kinds of samples may have in common, and the share of the smaller one. Halved,
  pieces are missed; doubled, noise makes pieces, and small pieces are missed.

The numbers are not derived. SIGMAS, SLACK, GAIN, SHELL and SPARSE were tuned on the sets of benchmarks/auto.py and the tests; the
others were set by reasoning and a few trials. What is said of halving and doubling is what is expected;
`benchmarks/sweep_rules.py` measures it on eleven cells (results/rules.json holds the changes that have been run).
"""

from __future__ import annotations

SIGMAS = (0.03, 0.1)  # of the set's size
ABOVE_NOISE = (1.5, 3.0)
MOST_SIGMA = 0.3  # of the set's size: farther away the nearest point is another one, whatever the noise
SLACK = 1.05
SPREAD = (0.9, 0.5)
TIE = 2.0  # standard errors of a paired difference below which two candidates are equal
GAIN = 0.5
NOISY = 0.3
LOUD = 0.3  # noise, in displacements: above it samples do not tell how near a set is to the truth
SHELL, SPARSE = 0.2, 1 / 3
OFF = 6.0
ISOLATED, NEIGHBOURS = 3.0, 5  # neighbours whose distance is compared
ROUGH = 0.1
TOGETHER = 0.2
ROUNDS = 10  # of dropping isolated samples, at most
CROWDING = 0.5  # of the spacing of points anywhere: nearer neighbours make a crowd
CROWD = 4  # neighbours for every coefficient of a graph
FLAT_ENOUGH = 3  # dimensions: in more, neighbours are too far away for a graph through them to tell an outlier
FEW_DROPPED, MOST_DROPPED = 0.1, 0.1
TAIL = 1.5
SMALL = 60  # monomials for which a search for outliers is cheap
CROWDED = 7.0
LOW = 3  # dimensions: in more, empty balls tell nothing
RIM = 0.01
CLOUD = 0.7
LEVEL = 0.05  # of a test by chance
QUARTER = 0.25
SKEWED = 0.3  # skewness of the distances from an equation, between that of noise, 0, and that of solid shells, below -0.6
NEARER = 0.5  # of the distance that lower degrees leave: a degree that leaves more brings nothing
ALIKE = 1.5  # times the noise that neighbourhoods show
BEYOND = 0.05
SHORT = 0.05  # share of held-out samples outside of an alpha shape that is worth a warning
SEEN = 0.5  # of a region's size: holes up to this radius should be seen
FEWEST_EACH = 10  # samples for every dimension and one more
ROUND = 1e-7  # of the size: held-out samples that are nearer satisfy equations exactly
TOUCH = 1e-9  # of the size: nearer is equal
JUDGES = 1_000  # held-out samples
ENOUGH = 4_000  # other samples among which candidates are compared; what wins is fitted to all
THICK = 1e-7  # a set that is flatter than this is flat
RARE = 2.0  # what is left out as noise lies beside samples that are less rare than that, in units of a flat rim
HIDDEN = 4  # degree up to which equations are sought that neighbourhoods do not show
LEFT = 2_000  # samples that tell how noise is distributed
