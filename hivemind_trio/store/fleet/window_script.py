"""Script for one window of `limits`. It is `scheduler/sharing/window_ring.py`; tests hold the two against each other.

Fields of the hash: `s:SLOT` is an amount, `n:NODE` the row of a node, the others as in `LIFE`.
"""

from __future__ import annotations

from typing import Final

from .life_script import LIFE

WINDOW: Final = (
    LIFE
    + """
local node, epoch, seq, known_run = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local nodes, limit0, least, want = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local more, back, report = tonumber(ARGV[9]), cjson.decode(ARGV[10]), cjson.decode(ARGV[11])
local window, slot_ms, good = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local learning_ms, forget, again_max, learn_again, present = tonumber(ARGV[15]), tonumber(ARGV[16]), 1000, 100, 60000
local key = KEYS[1]
local longest = slot_ms + window + good
local learning = math.min(learning_ms, longest)
local life, till, turns = turn(key, learning, longest, false)
local drawn, rows = {}, {}
local raw = redis.call('HGETALL', key)
for i = 1, #raw, 2 do
  local kind, name = string.sub(raw[i], 1, 2), string.sub(raw[i], 3)
  if turns and (kind == 's:' or kind == 'n:') then redis.call('HDEL', key, raw[i])
  elseif kind == 's:' then drawn[tonumber(name)] = tonumber(raw[i + 1])
  elseif kind == 'n:' then rows[name] = cjson.decode(raw[i + 1]) end
end
local current = math.floor(now / slot_ms)
local function over(slot) return (slot + 1) * slot_ms + window + good end
local function set(slot, amount)
  drawn[slot] = amount
  redis.call('HSET', key, 's:' .. string.format('%.0f', slot), string.format('%.0f', amount))
end
local function total()
  local sum = 0
  for _, amount in pairs(drawn) do sum = sum + amount end
  return sum
end
local function answer(granted, again, anew)
  return cjson.encode({granted = granted, slot = current, again = again, used = total(), run = life, anew = anew})
end
local own = rows[node]
if own and epoch < own.e then return 'fenced' end
if own and epoch == own.e and seq <= own.q then return answer(0, again_max, not own.k) end
for slot, _ in pairs(drawn) do
  if over(slot) <= now then
    drawn[slot] = nil
    redis.call('HDEL', key, 's:' .. string.format('%.0f', slot))
  end
end
for name, one in pairs(rows) do
  if now - one.t >= forget then rows[name] = nil redis.call('HDEL', key, 'n:' .. name) end
end
local anew = till >= 0
if known_run ~= '' then anew = known_run ~= life end
local since = now
if own and own.l > 0 and own.e == epoch and now - own.t < forget then since = own.s end
own = {e = epoch, q = seq, c = limit0, t = now, l = 0, w = 0, s = since, u = 0, k = not anew}
rows[node] = own
local function save() redis.call('HSET', key, 'n:' .. node, cjson.encode(own)) end
save()
redis.call('PEXPIRE', key, window + 120000)
if report ~= cjson.null and not anew then
  for _, one in ipairs(report) do
    local slot = math.floor((now - one[1]) / slot_ms)
    if over(slot) > now then set(slot, (drawn[slot] or 0) + one[2]) end
  end
end
for _, one in ipairs(anew and {} or back) do
  if drawn[one[1]] then set(one[1], math.max(0, drawn[one[1]] - one[2])) end
end
if more > 0 and not anew then set(current, (drawn[current] or 0) + more) end
if till >= 0 then
  local known = 0
  for _, one in pairs(rows) do if one.k then known = known + 1 end end
  if learns(key, till, known, nodes, learning) then return answer(0, learn_again, anew) end
end
if anew then return answer(0, learn_again, true) end
local limit, ahead, wanted = limit0, 0, want
for name, one in pairs(rows) do
  if now - one.t < present then limit = math.min(limit, one.c) end
  if name ~= node and one.l > 0 and one.u > now then
    wanted = wanted + one.w
    if least == 0 or one.s < since or (one.s == since and name < node) then ahead = ahead + one.l end
  end
end
local room = limit - total() - ahead
if want == 0 then return answer(0, again_max, false) end
local lacks = math.max(1, least) - room
if lacks > 0 then
  local slots, again = {}, again_max
  for slot, _ in pairs(drawn) do slots[#slots + 1] = slot end
  table.sort(slots)
  for _, slot in ipairs(slots) do
    lacks = lacks - drawn[slot]
    if lacks <= 0 then again = math.min(again_max, over(slot) - now) break end
  end
  own.l, own.w, own.u = least, want, now + again + again_max
  save()
  return answer(0, again, false)
end
local granted = math.min(want, room, math.max(least, math.floor(room * want / wanted)))
if granted > 0 then set(current, (drawn[current] or 0) + granted) end
return answer(granted, slot_ms, false)
"""
)
