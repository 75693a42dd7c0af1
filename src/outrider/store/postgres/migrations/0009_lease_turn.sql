-- Leases are listed in the order they were made: by their turn, a number of the crawl's counter. Those
-- made before have the smallest ones. `leased_at`: when a task was leased by fingerprint, else -1.

alter table lease
    add column turn bigint not null default 0,
    add column leased_at bigint not null default -1,
    add column lasts bigint not null default 0; -- milliseconds; 0: made before
update lease l set turn = o.place, leased_at = greatest(l.claimed_at, 0)
from (
    select task, row_number() over (partition by crawl order by claimed_at, task) as place
    from lease
) as o where o.task = l.task;
