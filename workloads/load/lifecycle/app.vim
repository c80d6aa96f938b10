" An editor with a large text; main.sh asks it to search a part of it.
call setline(1, map(range(1, 400000), '"line " .. v:val .. " of a text that is edited now and then"'))
