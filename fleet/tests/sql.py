"""Every job once more, as SQL of DuckDB over the files themselves."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from thermocline_fleet import Question
from thermocline_fleet._layout import AGE_EDGES_S

Rows = list[dict[str, Any]]

VIEWS = """
CREATE TABLE rows AS
SELECT *, (time_ms - interval_ms // 2) // 3600000 AS hour, coalesce(nullif({class_by}, ''), '(none)') AS class,
       mode = 'act' AS acting
FROM read_parquet({files}, hive_partitioning = true, union_by_name = true);

CREATE VIEW times AS
SELECT cluster, node, count(*) AS node_instants, sum(ms) AS node_ms
FROM (SELECT cluster, node, time_ms, max(interval_ms) AS ms FROM rows GROUP BY ALL) GROUP BY ALL;

CREATE VIEW long AS
SELECT rows.*, age, min_s, list_sum(idle_bytes[age + 1:]) AS cold, list_sum(idle_file_bytes[age + 1:]) AS file,
       list_sum(reaccess_bytes[age + 1:]) AS again
FROM rows, ages WHERE row = 'target';

CREATE VIEW moments AS
SELECT cluster, class, node, acting, hour, count(*) AS instants, sum(ms) AS covered_ms
FROM (SELECT cluster, class, node, acting, hour, time_ms, max(interval_ms) AS ms FROM rows WHERE row = 'target'
      GROUP BY ALL) GROUP BY ALL;

CREATE VIEW means AS
SELECT cluster, class, node, age, min_s, sum(resident_bytes) / any_value(node_instants) AS resident,
       sum(working_set_bytes) / any_value(node_instants) AS working_set,
       sum(cold) / any_value(node_instants) AS cold, sum(file) / any_value(node_instants) AS file,
       sum(again) / any_value(node_ms) * 60000 AS again
FROM long JOIN times USING (cluster, node) GROUP BY ALL;

CREATE VIEW cold_memory AS
SELECT cluster, class, min_s, count(*) AS hosts, sum(resident) AS resident_bytes, sum(cold) AS bytes,
       sum(file) AS file_bytes, sum(cold) / sum(resident) AS share
FROM means GROUP BY ALL;

CREATE VIEW refaults AS
SELECT cluster, class, min_s, sum(working_set) AS working_set_bytes, sum(again) AS bytes_per_min,
       sum(again) / greatest(sum(working_set), 4096) AS share_per_min
FROM means GROUP BY ALL;

CREATE VIEW hours AS
SELECT cluster, class, node, acting, hour, age, min_s, sum(resident_bytes) AS resident, sum(unknown_bytes) AS unknown,
       sum(working_set_bytes) AS working_set, sum(cold) AS cold, sum(file) AS file, sum(again) AS again,
       avg(pass_ms) AS pass_ms, coalesce(avg(swap_cost), {swap_cost}) AS cost,
       any_value(instants) AS instants, any_value(covered_ms) AS covered_ms
FROM long JOIN moments USING (cluster, class, node, acting, hour) GROUP BY ALL;

CREATE VIEW firsts AS SELECT cluster, class, node, min(hour) AS first_hour FROM moments GROUP BY ALL;

CREATE VIEW judged AS
SELECT *, cold / instants * out AS leaves, (file + (cold - file) * greatest(1 - cost, 0)) / instants * out AS net
FROM (
    SELECT *, again * 60000.0 / covered_ms AS refaults, greatest(working_set / instants, 4096) AS ws,
           (refaults <= {max_refaults} * ws)::int AS held,
           1 - least(again / covered_ms * pass_ms * 3 / greatest(cold / instants, 1), 1) AS out
    FROM hours JOIN firsts USING (cluster, class, node)
    WHERE NOT acting AND min_s >= 10 AND pass_ms <= min_s * 1000 AND unknown * 2 <= resident
      AND hour >= first_hour + greatest(0, ceil((min_s - 900) / 3600))
);

CREATE VIEW hosts AS
SELECT cluster, class, node, age, min_s, count(*) AS hours, sum(held) AS held,
       sum(refaults * instants) / sum(instants) AS refaults, sum(ws * instants) / sum(instants) AS ws,
       sum(leaves * instants) / sum(instants) AS leaves, sum(net * instants) / sum(instants) AS net,
       any_value(there) AS there
FROM judged
JOIN (SELECT cluster, class, node, sum(instants) / any_value(node_instants) AS there
      FROM moments JOIN times USING (cluster, node) GROUP BY ALL) USING (cluster, class, node) GROUP BY ALL;

CREATE VIEW by_hour AS
SELECT class, age, count(*) AS n, var_samp(held) AS variance, avg(net) AS mean, quantile_cont(net, 0.05) AS q05,
       quantile_cont(net, 0.95) AS q95
FROM (SELECT class, age, hour, avg(held) AS held, avg(net) AS net FROM judged GROUP BY ALL) GROUP BY ALL;

CREATE VIEW curve AS
SELECT class, min_s, hosts, host_hours, held, greatest(0, held - 1.645 * sqrt(vh / hosts + coalesce(variance / n, 0)))
           AS held_low, refaults / greatest(ws, 4096) AS share_per_min, leaves AS leaves_bytes, net AS net_saved_bytes,
       greatest(0, net - sqrt(pow(net * (q05 / mean - 1), 2) + margin)) AS low,
       net + sqrt(pow(net * (q95 / mean - 1), 2) + margin) AS high, running, age
FROM (
    SELECT class, age, min_s, count(*) AS hosts, sum(hours) AS host_hours, sum(held) / sum(hours) AS held,
           coalesce(var_samp(held / hours), 0) AS vh, sum(refaults * there) AS refaults, sum(ws * there) AS ws,
           sum(leaves * there) AS leaves, sum(net * there) AS net, avg(net) AS running,
           pow(1.96 * coalesce(stddev_samp(net * there), 0), 2) * count(*) AS margin
    FROM hosts GROUP BY ALL
) JOIN (SELECT * REPLACE (CASE WHEN mean > 0 THEN mean ELSE 1 END AS mean,
                          CASE WHEN mean > 0 THEN q05 ELSE 1 END AS q05,
                          CASE WHEN mean > 0 THEN q95 ELSE 1 END AS q95) FROM by_hour) USING (class, age);

CREATE VIEW advice AS
SELECT class, min(min_s) AS min_s, min(age) AS age FROM curve
WHERE held_low >= {hold} AND share_per_min <= {max_refaults} GROUP BY ALL;

CREATE VIEW requests AS
SELECT class, target, count(DISTINCT (cluster, node)) AS hosts, count(*) AS host_hours,
       quantile_cont(need, 0.99) * 1048576 AS need_p99_bytes,
       ceil(quantile_cont(need, 0.99) * (1 + {headroom})) * 1048576 AS request_bytes,
       quantile_cont(peak, 0.99) * 1048576 AS resident_p99_bytes,
       avg(CASE WHEN hour = (SELECT max(hour) FROM rows) THEN resident END) AS resident_now_bytes
FROM (
    SELECT class, target, cluster, node, hour, avg(bytes) AS resident, ceil(max(bytes) / 1048576) AS peak,
           ceil(max(bytes - CASE WHEN age IS NULL THEN 0 ELSE cold END) / 1048576) AS need
    FROM (
        SELECT class, target, cluster, node, hour, time_ms, any_value(age) AS age, sum(resident_bytes) AS bytes,
               sum(list_sum(idle_bytes[age + 1:])) AS cold
        FROM rows LEFT JOIN advice USING (class) WHERE row = 'target' GROUP BY ALL
    ) GROUP BY ALL
) GROUP BY GROUPING SETS ((class, target), (class));

CREATE VIEW shares AS
SELECT cluster, class, node, round(sum(cold) / sum(resident_bytes), 5) AS share
FROM long LEFT JOIN advice USING (class)
WHERE NOT acting AND long.age = coalesce(advice.age, 8) GROUP BY ALL;

CREATE VIEW outliers AS
SELECT cluster, class, node, share, median, mad, (share - median) * 0.6745 / greatest(mad, 1e-5) AS z
FROM (
    SELECT *, round(abs(share - median), 7) AS distance, quantile_cont(round(abs(share - median), 7), 0.5)
               OVER (PARTITION BY class) AS mad
    FROM (SELECT *, quantile_cont(share, 0.5) OVER (PARTITION BY class) AS median,
                 count(*) OVER (PARTITION BY class) AS n FROM shares)
    WHERE n >= 5
) WHERE abs(z) >= {outlier} AND distance >= 0.05;

CREATE VIEW drift AS
SELECT class, cluster, node, share, share_before, resident_bytes, resident_before_bytes,
       resident_bytes / resident_before_bytes - 1 AS growth
FROM (
    SELECT class, cluster, node,
           round(sum(cold) FILTER (week = 0) / sum(resident) FILTER (week = 0), 5) AS share,
           round(sum(cold) FILTER (week = 1) / sum(resident) FILTER (week = 1), 5) AS share_before,
           sum(resident) FILTER (week = 0) / sum(instants) FILTER (week = 0) AS resident_bytes,
           sum(resident) FILTER (week = 1) / sum(instants) FILTER (week = 1) AS resident_before_bytes
    FROM (SELECT hours.*, ((SELECT max(hour) FROM rows) - hour) // 168 AS week
          FROM hours LEFT JOIN advice USING (class) WHERE NOT acting AND hours.age = coalesce(advice.age, 8))
    GROUP BY GROUPING SETS ((class), (class, cluster, node))
)
WHERE share IS NOT NULL AND share_before IS NOT NULL
  AND (node IS NULL OR abs(round(share - share_before, 7)) >= 0.1 OR abs(growth) >= 0.25);

CREATE VIEW policies AS
SELECT class, policy, min_age_ms, count(*) AS hosts, avg(saved) AS saved_bytes, avg(out) AS out_bytes,
       avg(back) AS back_bytes_per_min
FROM (
    SELECT class, policy, min_age_ms, cluster, node, sum(net_saved_bytes) / count(DISTINCT time_ms) AS saved,
           sum(out_bytes) / count(DISTINCT time_ms) AS out,
           sum(back_bytes) / (count(DISTINCT time_ms) * 300000) * 60000 AS back
    FROM rows WHERE acting GROUP BY ALL
) GROUP BY ALL;

CREATE VIEW agents AS
SELECT count(*) AS hosts, avg(cpu) AS cpu_share, avg(resident) AS resident_bytes,
       quantile_cont(round(cpu, 6), 0.99) AS cpu_share_p99
FROM (SELECT cluster, node, sum(watching_cpu_us + acting_cpu_us) / 1000 / sum(interval_ms) AS cpu,
             avg(resident_bytes) AS resident FROM rows WHERE row = 'agent' GROUP BY ALL);
"""


class Database:
    """The views of all jobs over the files in a list."""

    def __init__(self, files: list[str], question: Question, class_by: str = "workload") -> None:
        self.connection = duckdb.connect()
        ages = pa.table({"age": list(range(len(AGE_EDGES_S))), "min_s": list(AGE_EDGES_S)})
        self.connection.register("ages_arrow", ages)
        self.connection.execute("CREATE TABLE ages AS SELECT * FROM ages_arrow")
        values = {name: getattr(question, name) for name in question.__dataclass_fields__}
        listed = "[" + ", ".join(f"'{file}'" for file in files) + "]"
        self.connection.execute(VIEWS.format(files=listed, class_by=class_by, **values))

    def rows(self, view: str) -> Rows:
        """All rows of a view."""
        found = self.connection.execute(f"SELECT * FROM {view}")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
