"""Error answers as providers give them, and what each is to be taken for.

Literal up to identifiers and dates. `seen` says where: a page of the provider's documentation as it stood in November
2026, or an issue at GitHub in which somebody shows one. What is `composed` was put together after what is named.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.wire import Signal

DATE: Final = {"date": "Sat, 21 Nov 2026 07:00:00 GMT", "content-type": "application/json"}


@final
@attrs.frozen
class Transcript:
    """One answer. `wait_s`, `final` and `by_reset` are what is expected of its signal, besides the outcome."""

    name: str
    seen: str
    status: int
    outcome: Outcome
    body: bytes
    headers: dict[str, str] = attrs.field(factory=dict)
    wait_s: float | None = None
    final: bool = False
    by_reset: bool = False

    @property
    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """As `read_signal` takes it."""
        return self.status, DATE | self.headers, self.body

    @property
    def signal(self) -> Signal:
        """What it says."""
        wait_ns = None if self.wait_s is None else round(self.wait_s * 1_000_000_000)
        return Signal(outcome=self.outcome, retry_after_ns=wait_ns, final=self.final, by_reset=self.by_reset)


ANTHROPIC: Final = [
    Transcript(
        "anthropic: tokens per minute",
        "body: OpenHands/OpenHands#9259; composed with the headers of api/rate-limits",
        429,
        Outcome.QUOTA,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit for '
        b"your organization (0dccdde6) of 20,000 input tokens per minute. For details, refer to: "
        b"https://docs.anthropic.com/en/api/rate-limits. You can see the response headers for current usage. Please "
        b'reduce the prompt length or the maximum tokens requested, or try again later."}}',
        {
            "retry-after": "41",
            "x-should-retry": "true",
            "anthropic-ratelimit-input-tokens-limit": "20000",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2026-11-21T07:00:41Z",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-11-21T07:00:01Z",
        },
        wait_s=41,
    ),
    Transcript(
        "anthropic: the same without a header that says so",
        "anthropics/claude-code#55132",
        429,
        Outcome.QUOTA,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization\'s '
        b'rate limit of 30,000 input tokens per minute (org: 9d50ef40, model: claude-sonnet-4-6)."}}',
    ),
    Transcript(
        "anthropic: acceleration",
        "anthropics/claude-code#71279",
        429,
        Outcome.BURST,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account\'s '
        b'rate limit. Please try again later."},"request_id":"req_011CcP6K"}',
        {"x-should-retry": "true"},
    ),
    Transcript(
        "anthropic: connections at the same time",
        "cline/cline#4351",
        429,
        Outcome.CONCURRENCY,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Number of concurrent connections has exceeded '
        b"your rate limit. Please try again later or contact sales at https://www.anthropic.com/contact-sales to "
        b'discuss your options for a rate limit increase."}}',
    ),
    Transcript(
        "anthropic: a subscription's five hours",
        "body: anthropics/claude-code#71504; composed with the headers that Claude Code reads",
        429,
        Outcome.BURST,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"},"request_id":"req_011CcQs8"}',
        {
            "retry-after": "16200",
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-5h-utilization": "1.0",
            "anthropic-ratelimit-unified-5h-reset": "1795260600",
        },
        wait_s=16_200,
    ),
    Transcript(
        "anthropic: the month's money",
        "can1357/oh-my-pi#5418",
        429,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account\'s '
        b'monthly spend limit. Please try again later."}}',
        {"retry-after": "300"},
        wait_s=300,
        final=True,
    ),
    Transcript(
        "anthropic: the month's money, with a code",
        "composed; the code is that of api/rate-limits",
        429,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited",'
        b'"details":{"error_code":"enforced_spend_limit_reached"}}}',
        final=True,
    ),
    Transcript(
        "anthropic: a limit of one's own",
        "anthropics/claude-code#2127",
        400,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage '
        b'limits. You will regain access on 2026-12-01 at 00:00 UTC."}}',
        wait_s=7 * 86_400,
        final=True,
    ),
    Transcript(
        "anthropic: the same, and tomorrow there is more",
        "composed: the words of anthropics/claude-code#2127, with another day",
        400,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage '
        b'limits. You will regain access on 2026-11-22 at 00:00 UTC."}}',
        wait_s=17 * 3_600,
        final=True,
    ),
    Transcript(
        "anthropic: billing",
        "api/errors",
        402,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"billing_error","message":"There\'s an issue with your billing or payment '
        b'information."},"request_id":"req_011CSHoE"}',
        final=True,
    ),
    Transcript(
        "anthropic: a subscription's extra usage",
        "openclaw/openclaw#61763",
        400,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"You\'re out of extra usage. Add more at '
        b'claude.ai/settings/usage and keep going."}}',
        final=True,
    ),
    Transcript(
        "anthropic: no credit",
        "anthropics/claude-code#66314",
        400,
        Outcome.TERMINAL,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access '
        b'the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."},"request_id":"req_011Cbr"}',
        final=True,
    ),
    Transcript(
        "anthropic: overloaded",
        "anthropics/claude-code#35792",
        529,
        Outcome.OVERLOADED,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CZAau"}',
        {"x-should-retry": "true"},
    ),
    Transcript(
        "anthropic: broken",
        "anthropics/claude-code#61368",
        500,
        Outcome.FAILED,
        b'{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_011CbGwJ"}',
    ),
    Transcript(
        "anthropic: too large",
        "api/errors",
        413,
        Outcome.IGNORED,
        b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
        final=True,
    ),
    Transcript(
        "anthropic: no key",
        "api/errors",
        401,
        Outcome.IGNORED,
        b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
        {"x-should-retry": "false"},
        final=True,
    ),
]

OPENAI: Final = [
    Transcript(
        "openai: tokens per minute",
        "body: continuedev/continue#11472; composed with the headers of guides/rate-limits",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-66tr5xhH on tokens per min (TPM): '
        b"Limit 30000, Used 18928, Requested 11159. Please try again in 174ms. Visit "
        b'https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,'
        b'"code":"rate_limit_exceeded"}}',
        {
            "retry-after": "1",
            "retry-after-ms": "174",
            "x-ratelimit-limit-tokens": "30000",
            "x-ratelimit-remaining-tokens": "11072",
            "x-ratelimit-reset-tokens": "37.856s",
        },
        wait_s=0.174,
    ),
    Transcript(
        "openai: requests, and no retry-after",
        "composed after guides/rate-limits",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Too many requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}',
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "8.64s"},
        wait_s=8.64,
        by_reset=True,
    ),
    Transcript(
        "openai: larger than a whole minute",
        "DrShushen/climb#13",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Request too large for gpt-4o in organization org-VDAWofJA on tokens per min (TPM): '
        b'Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully.",'
        b'"type":"tokens","param":null,"code":"rate_limit_exceeded"}}',
        {"x-should-retry": "false"},
        final=True,
    ),
    Transcript(
        "openai: no money",
        "guides/error-codes",
        429,
        Outcome.TERMINAL,
        b'{"error":{"message":"You exceeded your current quota, please check your plan and billing details. For more '
        b'information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",'
        b'"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}',
        final=True,
    ),
    *(
        Transcript(
            f"openai: {code}",
            "composed; the codes are those of guides/error-codes",
            429,
            Outcome.TERMINAL,
            b'{"error":{"message":"...","type":"billing_error","param":null,"code":"%b"}}' % code.encode(),
            final=True,
        )
        for code in ("billing_hard_limit_reached", "project_spend_limit_exceeded", "organization_usage_limit_exceeded")
    ),
    Transcript(
        "openai: overloaded",
        "guides/error-codes",
        503,
        Outcome.OVERLOADED,
        b'{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error",'
        b'"param":null,"code":null}}',
        {"retry-after": "20"},
        wait_s=20,
    ),
    Transcript(
        "openai: slow down",
        "composed after guides/error-codes",
        503,
        Outcome.TOO_FAST,
        b'{"error":{"message":"Slow down. There has been a sudden increase in your request rate.",'
        b'"type":"server_error","param":null,"code":"slow_down"}}',
    ),
    Transcript(
        "openai: slow down, as it is now",
        "composed: the code is that of guides/error-codes",
        429,
        Outcome.TOO_FAST,
        b'{"error":{"message":"...","type":"rate_limit_error","param":null,"code":"slow_down"}}',
        {"retry-after": "12"},
        wait_s=12,
    ),
    Transcript(
        "openai: slow down, without a code",
        "body: transitive-bullshit/OpenOpenAI#12",
        429,
        Outcome.TOO_FAST,
        b'{"error":{"message":"slow down","type":"invalid_request_error","param":null,"code":null}}',
    ),
    Transcript(
        "alibaba: too fast",
        "body: agentscope-ai/DojoZero#45",
        429,
        Outcome.TOO_FAST,
        b'{"error":{"message":"Request rate increased too quickly. To ensure system stability, please adjust your '
        b'client logic to scale requests more smoothly over time.","code":"limit_burst_rate"}}',
    ),
    Transcript(
        "openai: tokens per minute, and no header at all",
        "body: continuedev/continue#11472",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-66tr5xhH on tokens per min (TPM): '
        b'Limit 30000, Used 18928, Requested 11159. Please try again in 6m0s. Visit https://...","type":"tokens"}}',
        wait_s=360,
    ),
    Transcript(
        "openai: a word of a month",
        "composed after RFC 9110, section 10.2.3",
        429,
        Outcome.TERMINAL,
        b'{"error":{"message":"...","type":"requests","code":"rate_limit_exceeded"}}',
        {"x-ratelimit-remaining-requests": "0", "retry-after": "2592000"},
        wait_s=7 * 86_400,
        final=True,
    ),
    Transcript(
        "chatgpt: a plan's five hours",
        "earendil-works/pi#4172",
        429,
        Outcome.TERMINAL,
        b'{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus",'
        b'"resets_at":1777936568,"eligible_promo":null,"resets_in_seconds":13872}}',
        wait_s=13_872,
        final=True,
    ),
    Transcript(
        "openai: broken",
        "guides/error-codes",
        500,
        Outcome.FAILED,
        b'{"error":{"message":"The server had an error while processing your request","type":"server_error",'
        b'"param":null,"code":null}}',
    ),
    Transcript(
        "openai: longer than the window",
        "rahul2002m/ChatPDF#6",
        400,
        Outcome.IGNORED,
        b'{"error":{"message":"This model\'s maximum context length is 4097 tokens. However, your messages resulted in '
        b'6988 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}',
    ),
    Transcript(
        "openai: a conflict",
        "composed: the SDKs try a 409 again",
        409,
        Outcome.IGNORED,
        b'{"error":{"message":"The resource was updated by another request.","type":"conflict_error"}}',
        {"retry-after": "1"},
        wait_s=1,
    ),
    Transcript(
        "groq: tokens per day",
        "continuedev/continue#10920",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Rate limit reached for model `llama-3.3-70b-versatile` in organization `org_01kjh7p9` '
        b"service tier `on_demand` on tokens per day (TPD): Limit 100000, Used 97050, Requested 3619. Please try again "
        b'in 9m38.016s.","type":"tokens","code":"rate_limit_exceeded"}}',
        {"retry-after": "579"},
        wait_s=579,
    ),
    Transcript(
        "openrouter: more than the credit that is left",
        "Gitlawb/openclaude#1125",
        402,
        Outcome.IGNORED,
        b'{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 32000 '
        b"tokens, but can only afford 27342. To increase, visit https://openrouter.ai/settings/credits and upgrade to "
        b'a paid account","code":402,"metadata":{"provider_name":null}},"user_id":"user_3D0I"}',
        final=True,
    ),
    Transcript(
        "openrouter: no credit",
        "anomalyco/opencode#12219",
        402,
        Outcome.TERMINAL,
        b'{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 32000 '
        b'tokens, but can only afford 0. To increase, visit https://openrouter.ai/settings/keys","code":402}}',
        final=True,
    ),
    Transcript(
        "deepseek: no balance",
        "api-docs.deepseek.com, error codes",
        402,
        Outcome.TERMINAL,
        b'{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"'
        b"}}",
        final=True,
    ),
    Transcript(
        "openrouter: the free models",
        "composed after huggingface/smolagents#361 and Gitlawb/openclaude#936",
        429,
        Outcome.QUOTA,
        b'{"error":{"message":"Rate limit exceeded: free-models-per-min. ","code":429,"metadata":{"headers":'
        b'{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1795244460000"}}}}',
        {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1795244460000"},
        wait_s=60,
        by_reset=True,
    ),
]

AZURE: Final = [
    Transcript(
        "azure: a wait of nothing in a window of sixty seconds",
        "body: icereed/paperless-gpt#814; composed with the headers of openai/openai-dotnet#838",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":"429","message":"Your requests to gpt-4.1-nano for gpt-4.1-nano in Sweden Central have '
        b"exceeded the token rate limit for your current AIServices S0 pricing tier. Please retry after 1 "
        b'second."}}',
        {
            "retry-after": "1",
            "retry-after-ms": "0",
            "x-ratelimit-type": "Tokens",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "0",
            "x-ratelimit-renewalperiod-tokens": "60",
        },
        wait_s=60,
        by_reset=True,
    ),
    Transcript(
        "azure: requests in a window of ten seconds",
        "body: langchain-ai/langchain#12986; composed with the headers of foundry/how-to/quota",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":"429","message":"Requests to the Embeddings_Create Operation under Azure OpenAI API version '
        b'2023-07-01-preview have exceeded call rate limit of your current OpenAI S0 pricing tier."}}',
        {
            "retry-after": "6",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "8",
            "x-ratelimit-renewalperiod-requests": "10",
        },
        wait_s=8,
    ),
    # A request larger than a minute's tokens: not a quota that was used up, or a day would be lost for everybody.
    Transcript(
        "azure: a day",
        "alex-wolf-ps/dbchatprov2#2, vanderschaarlab/climb#1",
        429,
        Outcome.BURST,
        b'{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API '
        b"version 2024-08-01-preview have exceeded token rate limit of your current OpenAI S0 pricing tier. Please "
        b'retry after 86400 seconds. Please go here: https://aka.ms/oai/quotaincrease"}}',
        {"retry-after": "86400"},
        wait_s=86_400,
    ),
    Transcript(
        "azure: tokens per minute, without a header",
        "body: icereed/paperless-gpt#814, with another wait",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":"429","message":"Your requests to gpt-4.1-nano for gpt-4.1-nano in Sweden Central have '
        b"exceeded the token rate limit for your current AIServices S0 pricing tier. Please retry after 26 "
        b'seconds."}}',
        wait_s=26,
    ),
    Transcript(
        "azure: its one second, without a header",
        "body: icereed/paperless-gpt#814",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":"429","message":"Your requests to gpt-4.1-nano for gpt-4.1-nano in Sweden Central have '
        b"exceeded the token rate limit for your current AIServices S0 pricing tier. Please retry after 1 "
        b'second."}}',
    ),
    Transcript(
        "azure: no retry-after, and a name of its own for the reset",
        "headers: openai/openai-python#937",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":"429","message":"..."}}',
        {"x-rate-limit-reset-tokens": "55", "apim-request-id": "5d3e", "x-ratelimit-remaining-requests": "179"},
        wait_s=55,
        by_reset=True,
    ),
    Transcript(
        "azure: peak load",
        "pollinations/pollinations#6260",
        429,
        Outcome.BURST,
        b'{"error":{"code":"RATE_LIMITED","message":"The system is currently experiencing high demand and cannot '
        b"process your request. Your request exceeds the maximum usage size allowed during peak load. Please retry "
        b'after 20 seconds."}}',
        {"retry-after": "20"},
        wait_s=20,
    ),
]

GEMINI: Final = [
    Transcript(
        "gemini: tokens per minute",
        "RooCodeInc/Roo-Code#3883",
        429,
        Outcome.QUOTA,
        b'{\n  "error": {\n    "code": 429,\n    "message": "You exceeded your current quota, please check your plan '
        b'and billing details.",\n    "status": "RESOURCE_EXHAUSTED",\n    "details": [\n      {"@type": '
        b'"type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaMetric": "generativelanguage.googleapis'
        b'.com/generate_content_free_tier_input_token_count", "quotaId": "GenerateContentInputTokensPerModelPerMinute-'
        b'FreeTier", "quotaDimensions": {"location": "global", "model": "gemini-2.5-flash"}, "quotaValue": "250000"}]},'
        b'\n      {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": "Learn more"}]},'
        b'\n      {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"}\n    ]\n  }\n}\n',
        wait_s=26,
    ),
    Transcript(
        "gemini: a day's requests, among others",
        "google-gemini/gemini-cli#8437",
        429,
        Outcome.TERMINAL,
        b'{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":['
        b'{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":['
        b'{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"},'
        b'{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},'
        b'{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"31s"}]}}',
        wait_s=86_400,  # it is midnight in California
        final=True,
    ),
    Transcript(
        "gemini: a plan's requests",
        "composed after google-gemini/gemini-cli, googleQuotaErrors.ts",
        429,
        Outcome.TERMINAL,
        b'{"error":{"code":429,"message":"...","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/'
        b'google.rpc.ErrorInfo","reason":"QUOTA_EXHAUSTED","domain":"cloudcode-pa.googleapis.com"},'
        b'{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"5400s"}]}}',
        wait_s=5_400,
        final=True,
    ),
    Transcript(
        "gemini: overloaded, and for how long",
        "composed: google.rpc.RetryInfo beside the body of appatalks/eva-agent#50",
        503,
        Outcome.OVERLOADED,
        b'{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE",'
        b'"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}]}}',
        wait_s=12.5,
    ),
    Transcript(
        "gemini: streamed, an array of one",
        "google-gemini/gemini-cli#14831",
        429,
        Outcome.BURST,
        b'[{"error":{"code":429,"message":"Resource exhausted. Please try again later.","errors":[{"domain":"global",'
        b'"reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}\n]',
    ),
    Transcript(
        "gemini: credits",
        "composed after google-gemini/gemini-cli, googleQuotaErrors.ts",
        429,
        Outcome.TERMINAL,
        b'[{"error":{"code":429,"message":"No credits.","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",'
        b'"reason":"INSUFFICIENT_G1_CREDITS_BALANCE","domain":"cloudcode-pa.googleapis.com"}]}}]',
        final=True,
    ),
    Transcript(
        "vertex: requests per minute",
        "felixbinder/introspection_self_prediction#66",
        429,
        Outcome.QUOTA,
        b'{"error":{"code":429,"message":"Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_'
        b'minute_per_project_per_base_model with base model: gemini-pro.","status":"RESOURCE_EXHAUSTED"}}',
    ),
    Transcript(
        "gemini: overloaded",
        "appatalks/eva-agent#50",
        503,
        Outcome.OVERLOADED,
        b'{\n  "error": {\n    "code": 503,\n    "message": "The model is overloaded. Please try again later.",\n'
        b'    "status": "UNAVAILABLE"\n  }\n}\n',
    ),
]

MISTRAL: Final = [
    Transcript(
        "mistral: requests per second",
        "pydantic/pydantic-ai#1885, dnakov/anon-kode#53",
        429,
        Outcome.QUOTA,
        b'{"message":"Requests rate limit exceeded"}',
    ),
    Transcript(
        "mistral: a limit that is not named",
        "cline/cline#9085",
        429,
        Outcome.BURST,
        b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}',
    ),
    Transcript(
        "mistral: a limit that the headers name",
        "body: raycast/extensions#31107; composed with the headers of mistralai/client-ts#169",
        429,
        Outcome.QUOTA,
        b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300",'
        b'"raw_status_code":429}',
        {
            "x-ratelimit-limit-tokens-minute": "5000000",
            "x-ratelimit-remaining-tokens-minute": "4999911",
            "x-ratelimit-tokens-query-cost": "52",
            "x-ratelimit-limit-req-minute": "720",
            "x-ratelimit-remaining-req-minute": "0",
        },
    ),
    Transcript(
        "mistral: tokens per minute, in the headers before 2026",
        "body: cline/cline#9085; composed with the headers of lobehub/lobehub#6825",
        429,
        Outcome.QUOTA,
        b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}',
        {
            "ratelimitbysize-limit": "500000",
            "ratelimitbysize-query-cost": "32001",
            "ratelimitbysize-remaining": "0",
            "ratelimitbysize-reset": "38",
            "x-ratelimitbysize-limit-minute": "500000",
            "x-ratelimitbysize-limit-month": "1000000000",
            "x-ratelimitbysize-remaining-minute": "0",
            "x-ratelimitbysize-remaining-month": "995733790",
        },
        wait_s=38,
        by_reset=True,
    ),
    Transcript(
        "mistral: the month's tokens",
        "composed: the body of cline/cline#9085 with a header of promptfoo/promptfoo#10577",
        429,
        Outcome.TERMINAL,
        b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}',
        {"x-ratelimit-limit-tokens-month": "4000000", "x-ratelimit-remaining-tokens-month": "0"},
        final=True,
    ),
    Transcript(
        "mistral: a model that is not in the plan",
        "composed after public reports of a limit of 0 with a valid key",
        429,
        Outcome.TERMINAL,
        b'{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}',
        {"x-ratelimit-limit-req-minute": "0", "x-ratelimit-remaining-req-minute": "0"},
        final=True,
    ),
    Transcript(
        "mistral: the model's servers are full",
        "body: continuedev/continue#6185; the status of BerriAI/litellm#25078",
        503,
        Outcome.OVERLOADED,
        b'{"object":"error","message":"Service tier capacity exceeded for this model.","type":"invalid_request_error",'
        b'"param":null,"code":null}',
    ),
    Transcript(
        "mistral: the model's servers are full, as a 429",
        "composed: the same with the type and code that clients look for",
        429,
        Outcome.OVERLOADED,
        b'{"object":"error","message":"Service tier capacity exceeded for this model.",'
        b'"type":"service_tier_capacity_exceeded","param":null,"code":"3505"}',
    ),
    Transcript(
        "mistral: no backend",
        "public logs of evaluations",
        503,
        Outcome.OVERLOADED,
        b'{"object":"error","message":"Internal server error","type":"unreachable_backend","param":null,"code":"1100"}',
    ),
    Transcript(
        "mistral: an error of its web framework",
        "mistralai/client-python#103",
        500,
        Outcome.FAILED,
        b'{"detail": "Internal Server Error"}',
    ),
    Transcript(
        "mistral: a page of its CDN",
        "mistralai/mistral-vibe#681",
        520,
        Outcome.FAILED,
        b"<!DOCTYPE html> <html> <head> <title>mistral.ai | 520: Web server is returning an unknown error</title>",
        {"content-type": "text/html"},
    ),
    Transcript(
        "mistral: a wrong key",
        "agent0ai/agent-zero#539",
        401,
        Outcome.IGNORED,
        b'{"detail":"Unauthorized"}',
    ),
    Transcript(
        "mistral: a field that it does not know",
        "editor-code-assistant/eca#231",
        422,
        Outcome.IGNORED,
        b'{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":'
        b'"Extra inputs are not permitted","input":32000}]},"type":"invalid_request_error","param":null,"code":null}',
    ),
    Transcript(
        "mistral: the same, flat",
        "Gitlawb/openclaude#739",
        422,
        Outcome.IGNORED,
        b'{"detail":[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs are not permitted",'
        b'"input":false}]}',
    ),
    Transcript(
        "mistral: no such model",
        "tests of Micronaut LangChain4j",
        400,
        Outcome.IGNORED,
        b'{"object":"error","message":"Invalid model: mistral-tiny","type":"invalid_model","param":null,"code":"1500"}',
    ),
]

OTHERS: Final = [
    Transcript(
        "ollama: its queue is full",
        "ollama/ollama#4144",
        503,
        Outcome.OVERLOADED,
        b'{"error":"server busy, please try again.  maximum pending requests exceeded"}',
    ),
    Transcript(
        "ollama: no slot",
        "ollama/ollama#4159",
        500,
        Outcome.FAILED,
        b'{"error":"unexpected server status: llm busy - no slots available"}',
    ),
    Transcript(
        "ollama: a plan's session",
        "continuedev/continue#11444",
        429,
        Outcome.TERMINAL,
        b'{"error":"you (ae2055838) have reached your session usage limit, upgrade for higher limits: '
        b'https://ollama.com/upgrade"}',
        final=True,
    ),
    Transcript(
        "ollama: a plan's hour",
        "continuedev/continue#9233",
        429,
        Outcome.TERMINAL,
        b'{"error":"you\'ve reached your hourly usage limit, please wait or upgrade to continue"}',
        final=True,
    ),
    Transcript(
        "ollama: no such model",
        "docs/api",
        404,
        Outcome.IGNORED,
        b'{"error":"model \\"m\\" not found, try pulling it"}',
    ),
    Transcript(
        "vllm: longer than the window",
        "harbor-framework/harbor#996",
        400,
        Outcome.IGNORED,
        b'{"error":{"message":"You passed 1015 input tokens and requested 10 output tokens. However, the model\'s '
        b'context length is only 1024 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}',
    ),
    Transcript(
        "vllm: flat, as it was",
        "vllm-project/vllm#4667",
        400,
        Outcome.IGNORED,
        b'{"object":"error","message":"max_tokens must be at least 1, got -186.","type":"BadRequestError",'
        b'"param":null,"code":400}',
    ),
    Transcript(
        "generic: a flat 429",
        "composed: the same shape, with a status that matters",
        429,
        Outcome.CONCURRENCY,
        b'{"object":"error","message":"Too many parallel requests","type":"TooManyRequests","code":429}',
    ),
    Transcript(
        "generic: a page of nginx",
        "nginx, ngx_http_special_response.c",
        502,
        Outcome.FAILED,
        b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>"
        b"\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
        {"content-type": "text/html"},
    ),
    Transcript(
        "generic: maintenance until a date",
        "composed after RFC 9110, section 10.2.3",
        503,
        Outcome.OVERLOADED,
        b"closed",
        {"retry-after": "Sat, 21 Nov 2026 07:02:00 GMT", "content-type": "text/plain"},
        wait_s=120,
    ),
    Transcript("generic: nothing but a status", "composed", 429, Outcome.BURST, b""),
    Transcript("cloudflare: 524", "developers.cloudflare.com, error 524", 524, Outcome.FAILED, b"error code: 524"),
]

TRANSCRIPTS: Final = [*ANTHROPIC, *OPENAI, *AZURE, *GEMINI, *MISTRAL, *OTHERS]
