"""Tests of working_set.py with synthetic figures. working_set.sh runs them before it measures."""
import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import working_set

MIB = working_set.MIB


def truth_lines():
    """100 MiB resident; 20, 30 and 60 MiB accessed in 5, 10 and 30 s."""
    accessed = {5: (19, 20, 21), 10: (30, 30, 30), 30: (59, 60, 61)}
    return [
        {"window_s": window, "elapsed_s": window, "referenced_bytes": value * MIB, "rss_bytes": 100 * MIB}
        for window, values in accessed.items()
        for value in values
    ]


def wss(p50=(20, 30, 60)):
    return {
        "schema": 2,
        "windows": [
            {"window_s": window, "bytes": {"min": 0, "p50": value * MIB, "max": 100 * MIB}}
            for window, value in zip((5, 10, 30), p50)
        ],
    }


def idle(oldest=40):
    ages = [(0, 5, 20), (5, 10, 10), (10, 30, 70 - oldest), (30, 86400, oldest - 5), (86400, None, 5)]
    return {
        "ages": [{"min_s": begin, "max_s": end, "bytes": value * MIB} for begin, end, value in ages],
        "resident_bytes": 100 * MIB,
        "unknown_bytes": 0,
        "pass_s": 1.5,
        "method": "scan",
    }


class Compare(unittest.TestCase):
    def run_compare(self, reports, own=None):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            path = Path(folder)
            flags = ["compare", "made-up", "--truth", str(path / "truth.jsonl")]
            (path / "truth.jsonl").write_text("".join(json.dumps(line) + "\n" for line in truth_lines()))
            if reports is not None:
                flags += ["--reports", folder]
                for name, report in reports.items():
                    (path / f"{name}.json").write_text(json.dumps(report))
            if own is not None:
                flags += ["--own", str(path / "own.jsonl")]
                (path / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
            code = working_set.main(flags)
        return code, printed.getvalue()

    def reports(self, **changed):
        return {"wss": wss(), "idle": idle(), "info": {"own_cpu_percent": 0.9}} | changed

    def test_exact_reports_pass(self):
        code, printed = self.run_compare(self.reports())
        self.assertEqual(code, 0, printed)
        self.assertNotIn("BEYOND", printed)
        self.assertIn("scan pass 1.50 s, own CPU 0.90 %, method scan", printed)

    def test_difference_is_in_percent_of_resident(self):
        # A difference of 5 MiB is a quarter of the working set, but 5 % of the resident memory: just within
        # the limit.
        code, printed = self.run_compare(self.reports(wss=wss(p50=(25, 30, 60))))
        self.assertEqual(code, 0, printed)
        self.assertIn("+5.00 %", printed)

    def test_difference_fails_beyond_limit_in_either_direction(self):
        for p50 in ((26, 30, 60), (20, 30, 54)):
            code, printed = self.run_compare(self.reports(wss=wss(p50=p50)))
            self.assertEqual((code, printed.count("BEYOND")), (1, 1), printed)

    def test_idle_sums_all_older_classes(self):
        code, printed = self.run_compare(self.reports(idle=idle(oldest=50)))
        self.assertEqual((code, printed.count("BEYOND")), (1, 1), printed)
        self.assertRegex(printed, r"idle >= 30 s .* 50\.0 .*\+10\.00 %")

    def test_missing_window_and_missing_report_fail(self):
        for reports in (self.reports(wss={"windows": wss()["windows"][:2]}), {"wss": wss()}):
            code, printed = self.run_compare(reports)
            self.assertEqual(code, 1, printed)
            self.assertIn("missing", printed)

    def test_missing_idle_class_is_not_compared(self):
        coarse = idle() | {"ages": [{"min_s": 0, "max_s": 30, "bytes": 60 * MIB}, {"min_s": 30, "max_s": None, "bytes": 40 * MIB}]}
        code, printed = self.run_compare(self.reports(idle=coarse))
        self.assertEqual(code, 0, printed)
        self.assertNotIn("idle >= 5 s", printed)

    def test_truth_alone_shows_noise_and_own_count(self):
        pages = 20 * MIB // working_set.PAGE
        own = [{"ready": True, "pid": 1}, {"window_s": 5, "end_s": 5.0, "pages": pages}]
        code, printed = self.run_compare(None, own)
        self.assertEqual(code, 0)
        self.assertIn("5 s 1.00 % 10 s 0.00 % 30 s 1.00 %", printed)
        self.assertIn("exact count of the program in 5 s: 20.0 (20.0-20.0, n=1); error of the truth +0.00 %", printed)


class Measure(unittest.TestCase):
    def test_rollup_reads_bytes_of_this_process(self):
        fields = working_set.rollup("self")
        self.assertGreaterEqual(fields["Rss"], fields["Referenced"])
        self.assertEqual(fields["Rss"] % working_set.PAGE, 0)


if __name__ == "__main__":
    unittest.main()
