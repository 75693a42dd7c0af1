-- Who acted: the operator whose act caused an event.

alter table event add column by text not null default '';
