-- The delay drawn as a visit began, where delays are uniform and count from the start.

alter table lease add column drawn double precision not null default -1; -- below 0: none
