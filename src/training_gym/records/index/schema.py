"""The tables of one run's database. A change here is a new `LAYOUT`: old databases are rebuilt."""

from __future__ import annotations

LAYOUT = 2

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- How far each file has been read.
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, stream TEXT, name TEXT, writer TEXT, attempt INTEGER,
    offset INTEGER, records INTEGER, damaged INTEGER, UNIQUE (stream, name)
);

-- Events, alerts, evaluations and annotations as they are.
CREATE TABLE records (
    id INTEGER PRIMARY KEY, stream TEXT, kind TEXT, writer TEXT, attempt INTEGER, seq INTEGER,
    time REAL, batch INTEGER, optimizer_step INTEGER, policy_version INTEGER,
    hidden INTEGER DEFAULT 0, fields TEXT, UNIQUE (stream, writer, attempt, seq)
);
CREATE TABLE heartbeats (writer TEXT PRIMARY KEY, attempt INTEGER, time REAL, fields TEXT);

CREATE TABLE logs (
    id INTEGER PRIMARY KEY, segment INTEGER, offset INTEGER, length INTEGER, time REAL,
    batch INTEGER, writer INTEGER, source INTEGER, level INTEGER
);
CREATE INDEX logs_by_time ON logs (time, id);

-- Where spans lie: see span_blocks.py.
CREATE TABLE span_blocks (
    id INTEGER PRIMARY KEY, segment INTEGER, offset INTEGER, length INTEGER, count INTEGER,
    after_seq INTEGER, first REAL, last REAL
);
CREATE TABLE span_writers (
    writer TEXT, attempt INTEGER, last_seq INTEGER, PRIMARY KEY (writer, attempt)
);
CREATE TABLE span_lanes (lane TEXT PRIMARY KEY);
CREATE TABLE open_spans (
    id INTEGER PRIMARY KEY, segment INTEGER, offset INTEGER, length INTEGER,
    writer TEXT, attempt INTEGER, key TEXT, name TEXT, start REAL
);

-- Metrics by column: see columns.py.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY, writer TEXT, attempt INTEGER, num_rows INTEGER, last_seq INTEGER,
    tokens REAL, kept BLOB, UNIQUE (writer, attempt)
);
CREATE TABLE chunks (
    lane INTEGER, name INTEGER, number INTEGER, count INTEGER, first_row INTEGER,
    by_256 BLOB, by_16 BLOB, row_numbers BLOB, data BLOB, UNIQUE (name, lane, number)
);
CREATE TABLE recent (
    id INTEGER PRIMARY KEY, lane INTEGER, row INTEGER, names BLOB, data BLOB
);
CREATE INDEX recent_by_lane ON recent (lane, row);

-- Episodes: what is filtered by here, what is only shown in `episode_texts`.
CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT UNIQUE);
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, key TEXT, stream INTEGER, task TEXT, environment INTEGER,
    step INTEGER, size INTEGER, judged INTEGER, low REAL, high REAL, mean REAL, deviation REAL,
    UNIQUE (key, task, stream)
);
CREATE INDEX groups_by_step ON groups (step, stream);
CREATE INDEX groups_by_task ON groups (task);
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY, key TEXT, in_group INTEGER, member INTEGER, stream INTEGER,
    environment INTEGER, step INTEGER, batch INTEGER, optimizer_step INTEGER,
    policy_version INTEGER, writer INTEGER, attempt INTEGER, seq INTEGER, time REAL,
    status INTEGER, reward REAL, tokens INTEGER, prompt_tokens INTEGER, turns INTEGER,
    staleness INTEGER, mean_logprob REAL, duration_s REAL, retries INTEGER,
    hidden INTEGER DEFAULT 0, dropped INTEGER DEFAULT 0,
    segment INTEGER, offset INTEGER, length INTEGER,
    c0 REAL, c1 REAL, c2 REAL, c3 REAL, c4 REAL, c5 REAL, c6 REAL, c7 REAL,
    UNIQUE (writer, attempt, seq)
);
CREATE INDEX episodes_by_time ON episodes (time, id);
CREATE INDEX episodes_by_key ON episodes (key);
CREATE INDEX episodes_by_group ON episodes (in_group, reward);
CREATE INDEX episodes_by_step ON episodes (step, stream);
CREATE INDEX episodes_by_reward ON episodes (reward);
CREATE TABLE episode_texts (id INTEGER PRIMARY KEY, reason TEXT, components TEXT, preview TEXT);
CREATE TABLE components (place INTEGER PRIMARY KEY, name TEXT UNIQUE);

-- What events say of episodes: failures of rewards, reasons to discard.
CREATE TABLE remarks (id INTEGER PRIMARY KEY, episode TEXT, kind TEXT, fields TEXT);
CREATE INDEX remarks_by_episode ON remarks (episode);

-- Where columns lie that became known after an episode was recorded.
CREATE TABLE display_columns (
    episode TEXT, segment INTEGER, offset INTEGER, length INTEGER,
    PRIMARY KEY (episode, segment, offset)
) WITHOUT ROWID;
"""

COMPONENT_COLUMNS = 8
"""Components of a reward that have a column of their own; further ones are read as JSON."""
