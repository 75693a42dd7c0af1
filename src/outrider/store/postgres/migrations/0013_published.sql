-- The events that workers published for those who follow a crawl: the last batches of each crawl. A
-- crash of the server may forget them, which readers are told: they are worth no write-ahead log.

create unlogged table published (
    crawl integer not null,
    last bigint not null, -- the number of its last event
    publisher text not null,
    serial bigint not null,
    worker text not null,
    bytes bigint not null, -- of this batch and all before it
    events text not null, -- JSON
    primary key (crawl, last)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create index published_by_publisher on published (crawl, publisher, serial);
create index published_by_bytes on published (crawl, bytes);
