-- What workers count: the totals of each, and those of workers that were removed.

alter table worker add column totals text not null default ''; -- JSON; '': none

create table worker_total (
    crawl integer primary key,
    totals text not null
);
