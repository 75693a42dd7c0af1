-- What the workers of a crawl tell each other. A note stands under its topic and name until another
-- one is written over it; who writes holds the crawl's lock for notes, so numbers are seen in their
-- order, without gaps, and no two notes have one topic and name. Nobody else waits for that lock.

create table note (
    crawl integer not null,
    number bigint not null, -- higher than those of all notes written before it
    at bigint not null,
    topic text not null,
    name text not null,
    text text not null, -- '': it is gone
    primary key (crawl, number)
);
-- A name may be too long for an index; this one cannot be taken for that of the numbers.
create index note_known on note (topic, md5(name), crawl);
