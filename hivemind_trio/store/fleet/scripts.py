"""Scripts that Redis runs. `SYNC` is `scheduler/sharing/shared_pool.py`; tests hold the two against each other.

Rows are JSON, in which Redis keeps 14 digits: times are milliseconds. `g` says what a node does at a notice. Without
it, it is of before 2026-11-27, and asks for slots that come free; others are given them in the notice of who returned
them. With 2 it gives back by itself what a node that waits is due; others are called to report.
"""

from __future__ import annotations

from typing import Final

from .life_script import LIFE

CLOCK: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local function connected(name) return redis.call('PUBSUB', 'NUMSUB', ARGV[16] .. name)[2] > 0 end
local function listeners()
  local found = redis.pcall('PUBSUB', 'CHANNELS', string.gsub(ARGV[16], '[%[%]*?^\\\\]', '\\\\%0') .. '*')
  if found.err then return false end
  for i, channel in ipairs(found) do found[i] = string.sub(channel, #ARGV[16] + 1) end
  return found
end
"""
"""Time, process and connections of the server; `listeners` is false if it may not be asked for all of them."""

SYNC: Final = (
    LIFE
    + """
local node = ARGV[1]
local epoch, seq, cap0, nodes = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local keep, held, demand = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local target, owed, floor = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local lease, grace, gone, forget = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local told = ARGV[17]
local rows, order = {}, {}
local raw = redis.call('HGETALL', KEYS[1])
for i = 1, #raw, 2 do rows[raw[i]] = cjson.decode(raw[i + 1]) end
local function save(name) redis.call('HSET', KEYS[1], name, cjson.encode(rows[name])) end
local function occupied(row) return math.max(row.a, row.h) end
local limit = tonumber(redis.call('HGET', KEYS[2], 'limit') or math.huge)
local life, till, turns = turn(KEYS[2], gone + grace, 0, true)
if turns then
  for name, row in pairs(rows) do row.k, row.t, row.s = false, now, -1 save(name) end
end
local blind = false
local function answer(row, tell, granted)
  local least = limit
  for _, one in pairs(rows) do least = math.min(least, one.p) end
  local told = {cap = least, share = row.a, run = life, learning = till >= 0, rows = rows}
  told.tell, told.granted = tell, granted
  told.blind = blind and till >= 0
  return cjson.encode(told)
end

local own = rows[node]
if own and epoch < own.e then return 'fenced' end
if own and epoch == own.e and seq <= own.q then return answer(own, '', '') end

for name, row in pairs(rows) do
  if name ~= node then
    row.t = math.min(row.t, now)
    local silent, there = now - row.t, connected(name)
    local bound = there and lease or gone
    if silent < bound then row.s = -1
    elseif row.s < 0 then row.s = now
    elseif now - row.s >= grace then
      if not there or silent >= forget then rows[name] = nil
      else
        local share = math.min(row.a, row.f)
        local held = math.min(row.h, share)
        if share ~= row.a or held ~= row.h then row.n = (row.n or 0) + 1 end
        row.a, row.h = share, held
      end
    end
    if rows[name] then save(name) else redis.call('HDEL', KEYS[1], name) end
  end
end

local changed = not own
local known_share = (own and own.e == epoch) and own.a or 0
local before = own and occupied(own) or 0
local cap, room = math.min(cap0, limit), 0
for name, row in pairs(rows) do
  if name ~= node then cap = math.min(cap, row.p) room = room - occupied(row) end
end
room = math.max(0, cap + room)

if till >= 0 then
  local known, there = 0, listeners()
  for name, row in pairs(rows) do
    if row.k and (name == node or connected(name)) then known = known + 1 end
  end
  local strange = not there
  blind = strange
  for _, name in ipairs(there or {}) do
    if not (rows[name] and rows[name].k) and not (name == node and told == life) then strange = true end
  end
  if strange or redis.call('HGET', KEYS[2], 'strange') == '1' then
    till = math.max(till, math.min(now + grace, tonumber(redis.call('HGET', KEYS[2], 'since')) + lease))
  end
  redis.call('HSET', KEYS[2], 'strange', strange and 1 or 0)
  if not learns(KEYS[2], till, known, nodes, gone + grace) then till = -1 end
end
local share = keep
if till < 0 then share = math.max(math.min(keep, known_share), math.min(target, room)) end
local row = {e = epoch, q = seq, p = cap0, a = share, h = held, w = demand, c = owed, f = floor}
row.t, row.k, row.s, row.n, row.g = now, told == life, -1, 0, 2
if own then changed = own.a ~= row.a or own.h ~= row.h or own.w ~= row.w end
rows[node] = row
save(node)
redis.call('PEXPIRE', KEYS[1], forget + 60000)
redis.call('PEXPIRE', KEYS[2], forget + 60000)

local free, granted, given = cap, {}, {}
for _, one in pairs(rows) do free = free - occupied(one) end
for _, due in ipairs(till < 0 and cjson.decode(ARGV[18]) or {}) do
  local name, part = due[1], due[2]
  local one = rows[name]
  if one and one.g and name ~= node and now - one.t < grace and connected(name) then
    local slots = math.min(free, math.min(part, one.w) - occupied(one))
    if slots > 0 then
      one.a, one.n, free = occupied(one) + slots, one.n + 1, free - slots
      granted[#granted + 1], given[name] = name, one
      save(name)
    end
  end
end

local wanted, tell, waits = 0, {}, row.w > occupied(row)
local notice = KEYS[1] .. '\\n' .. cjson.encode({node = node, run = life, row = row, granted = given})
for name, one in pairs(rows) do wanted = wanted + one.w order[#order + 1] = name end
table.sort(order)
for _, name in ipairs(order) do
  local one = rows[name]
  local asks = not one.g and occupied(row) < before and one.w > occupied(one)
  local more = occupied(one) > one.w or occupied(one) * wanted >= cap * one.w + wanted
  local old = occupied(one) > 0 and now - one.t >= math.floor(grace / 12)
  if name ~= node and one.g ~= 2 and not given[name] and (asks or (waits and (more or old))) then
    redis.call('PUBLISH', ARGV[16] .. name, KEYS[1])
  elseif name ~= node and (changed or waits or #granted > 0) then
    tell[#tell + 1] = name
    redis.call('PUBLISH', ARGV[16] .. name, notice)
  end
end
return answer(row, table.concat(tell, '\\n'), table.concat(granted, '\\n'))
"""
)

EPOCH: Final = """
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
"""

BYE: Final = """
local learns = redis.call('HGET', KEYS[3], 'n:' .. ARGV[1])
if learns and cjson.decode(learns).e == tonumber(ARGV[2]) then
  redis.call('HDEL', KEYS[3], 'n:' .. ARGV[1], 'l:' .. ARGV[1])
end
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return 0 end
local row = cjson.decode(raw)
if row.e ~= tonumber(ARGV[2]) then return 0 end
row.a, row.h, row.w, row.q = 0, 0, 0, tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(row))
for name, other in pairs(redis.call('HGETALL', KEYS[1])) do
  if name % 2 == 1 and other ~= ARGV[1] then redis.call('PUBLISH', ARGV[4] .. other, KEYS[1]) end
end
return 1
"""
