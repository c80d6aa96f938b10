" An editor with a large text. The experiment makes it search a part of the text.
call setline(1, map(range(1, 400000), '"line " .. v:val .. " of a text that is edited now and then"'))
