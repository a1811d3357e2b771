"""Script for what nodes learn of one provider. It is `scheduler/learning/learn_record.py`; tests hold the two together.

Fields of the hash: `n:NODE` is the row of a node, `l:NODE` its lessons; `leader`, `verdict`, `told`, `probe` and
`until` as in the model. The limit is also a field of the pool's record, where `SYNC` reads it.
"""

from __future__ import annotations

from typing import Final

LEARN: Final = """
local node, epoch, seq, ask = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), cjson.decode(ARGV[4])
local lead, gone, most, forget = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local key = KEYS[1]
local record, rows, lessons, order = {}, {}, {}, {}
local raw = redis.call('HGETALL', key)
for i = 1, #raw, 2 do
  local kind, name = string.sub(raw[i], 1, 2), string.sub(raw[i], 3)
  if kind == 'n:' then rows[name] = cjson.decode(raw[i + 1])
  elseif kind == 'l:' then lessons[name] = cjson.decode(raw[i + 1])
  else record[raw[i]] = raw[i + 1] end
end
local leader, probe = record.leader or '', record.probe or ''
local verdict = record.verdict and cjson.decode(record.verdict) or nil
local told, till = tonumber(record.told or 0), tonumber(record['until'] or 0)
local function drop(name)
  rows[name], lessons[name] = nil, nil
  redis.call('HDEL', key, 'n:' .. name, 'l:' .. name)
end
local function answer(leads, may, reports, wake)
  local shown = cjson.null
  if verdict then
    shown = {l = verdict.l, d = verdict.d, c = verdict.c, o = math.max(0, verdict.o - (now - told))}
  end
  local given = #reports > 0 and reports or cjson.null
  return cjson.encode({leads = leads, verdict = shown, probe = may, reports = given, wake = table.concat(wake, '\\n')})
end
local row = rows[node]
if row and (epoch < row.e or (epoch == row.e and seq <= row.q)) then return answer(false, false, {}, {}) end
for name, one in pairs(rows) do
  if one.t > now then one.t = now redis.call('HSET', key, 'n:' .. name, cjson.encode(one)) end
  if now - one.t >= gone then drop(name) end
end
row = rows[node]
if not row or row.e ~= epoch then
  drop(node)
  if leader == node then leader = '' end
end
row = {e = epoch, q = seq, t = now, h = ask.h, b = ask.b}
rows[node] = row
redis.call('HSET', key, 'n:' .. node, cjson.encode(row))
for name, _ in pairs(rows) do order[#order + 1] = name end
table.sort(order)
local wake = {}
local function all()
  wake = {}
  for _, name in ipairs(order) do if name ~= node then wake[#wake + 1] = name end end
end
local first = rows[leader]
if not first or now - first.t >= lead then leader = node end
local leads = leader == node
if ask.v ~= cjson.null and (not verdict or (leads and ask.leads)) then
  local before = verdict
  verdict, told = ask.v, now
  if not before or before.l ~= verdict.l or before.c ~= verdict.c then all() probe = '' end
end
if leads then
  lessons[node] = nil
  redis.call('HDEL', key, 'l:' .. node)
elseif #ask.s > 0 then
  local kept = lessons[node] or {}
  for _, one in ipairs(ask.s) do
    one[#one + 1] = now
    kept[#kept + 1] = one
  end
  while #kept > most do table.remove(kept, 1) end
  lessons[node] = kept
  redis.call('HSET', key, 'l:' .. node, cjson.encode(kept))
end
if ask.u then all() end
local may = false
if verdict and verdict.c == 'half-open' then
  if probe == node and not ask.probes and not ask.wants then probe = '' end
  if ask.probes or (ask.wants and (probe == '' or probe == node or now >= till)) then
    probe, till, may = node, now + gone, true
  end
end
local reports = {}
if leads then
  for _, name in ipairs(order) do
    if name ~= node then
      local one, steps = rows[name], lessons[name] or {}
      for _, step in ipairs(steps) do
        step[2] = step[2] + math.max(0, now - step[#step])
        step[#step] = nil
      end
      reports[#reports + 1] = {n = name, e = one.e, h = one.h, b = one.b, s = #steps > 0 and steps or cjson.null}
      redis.call('HDEL', key, 'l:' .. name)
    end
  end
end
redis.call('HSET', key, 'leader', leader, 'probe', probe, 'told', told, 'until', till)
if verdict then
  redis.call('HSET', key, 'verdict', cjson.encode(verdict))
  if verdict.l > 0 then redis.call('HSET', KEYS[2], 'limit', verdict.l) else redis.call('HDEL', KEYS[2], 'limit') end
end
redis.call('PEXPIRE', key, forget)
redis.call('PEXPIRE', KEYS[2], forget)
for _, name in ipairs(wake) do redis.call('PUBLISH', ARGV[9] .. name, ARGV[10]) end
return answer(leads, may, reports, wake)
"""
