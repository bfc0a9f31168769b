# Compares logits with the reference: rms error relative to the reference's standard deviation, and greedy agreement
# where the top-1 margin exceeds the error. Exit 1 beyond the limit, for other shapes, or for values that are not finite.
import argparse
import sys

import numpy as np


def relative_error(ours, reference):
    """sqrt(mean((ours - reference)^2)) / std(reference), in double precision."""
    difference = ours.astype(np.float64) - reference
    return float(np.sqrt(np.mean(difference ** 2)) / np.std(reference.astype(np.float64)))


def greedy_agreement(ours, reference):
    """(rows that choose the reference's token, rows whose margin is clear).

    A margin is clear above 6 rms errors of the row: two logits that err independently differ by sqrt(2) rms, so a
    swap across it is a 4-sigma event and means a wrong value, not rounding.
    """
    agree = clear = 0
    for row, want in zip(ours, reference):
        second, first = np.partition(want, -2)[-2:]
        if first - second > 6 * np.sqrt(np.mean((row.astype(np.float64) - want) ** 2)):
            clear += 1
            agree += int(np.argmax(row) == np.argmax(want))
    return agree, clear


def compare(ours, reference, limit):
    """Prints the report; returns the list of complaints."""
    if ours.shape != reference.shape:
        return ["shape %s, the reference has %s" % (ours.shape, reference.shape)]
    if ours.ndim == 1:
        ours, reference = ours[None], reference[None]
    for name, array in (("logits", ours), ("reference", reference)):
        if not np.isfinite(array).all():
            where = np.argwhere(~np.isfinite(array))[0]
            return ["%s hold %d values that are not finite, the first at row %d, column %d" % (
                name, int((~np.isfinite(array)).sum()), where[0], where[1])]
    for index, (row, want) in enumerate(zip(ours, reference)):
        print("row %d: error %.4f %%, std %.3f, largest difference %.4f, top-1 %d, reference %d" % (
            index, 100 * relative_error(row, want), want.std(), np.max(np.abs(row - want)), row.argmax(), want.argmax()))
    overall = relative_error(ours, reference)
    agree, clear = greedy_agreement(ours, reference)
    print("overall: error %.4f %% of std %.3f (limit %.2f %%), greedy agrees on %d of %d rows with a clear margin, "
          "%d of %d rows in all" % (100 * overall, reference.std(), 100 * limit, agree, clear,
                                    int((ours.argmax(-1) == reference.argmax(-1)).sum()), len(reference)))
    complaints = []
    if not overall <= limit:
        complaints.append("error %.4f %% exceeds the limit %.2f %%" % (100 * overall, 100 * limit))
    if agree < clear:
        complaints.append("the greedy token differs on %d of %d rows with a clear margin" % (clear - agree, clear))
    return complaints


def main():
    parser = argparse.ArgumentParser(description="Compares logits [rows, vocab] with reference logits.")
    parser.add_argument("ours")
    parser.add_argument("reference")
    parser.add_argument("--limit", type=float, default=0.02, help="largest overall error, as a part of the std")
    options = parser.parse_args()
    complaints = compare(np.load(options.ours), np.load(options.reference), options.limit)
    for complaint in complaints:
        print("%s: %s" % (options.ours, complaint), file=sys.stderr)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
