-- What the end of a run reports: tasks by state, and visits.

alter table event add column counts text not null default ''; -- JSON; '': none
