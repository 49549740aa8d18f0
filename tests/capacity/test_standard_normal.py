import numpy as np
import pytest
from scipy import stats

from capacity.model import standard_normal

FAR = np.array([-38.0, -8.0, -1.5, 0.0, 0.3, 2.0, 9.0])


def test_it_is_the_distribution_of_scipy_also_far_out() -> None:
    norm = stats.norm
    assert standard_normal.density(FAR) == pytest.approx(norm.pdf(FAR))
    assert standard_normal.log_density(FAR) == pytest.approx(norm.logpdf(FAR))
    assert standard_normal.log_below(FAR) == pytest.approx(norm.logcdf(FAR))
    assert standard_normal.above(FAR) == pytest.approx(norm.sf(FAR))
    assert standard_normal.quantile(0.95) == pytest.approx(norm.ppf(0.95))
    expected = np.exp(norm.logpdf(FAR) - norm.logcdf(FAR))
    assert standard_normal.hazard_below(FAR) == pytest.approx(expected)
