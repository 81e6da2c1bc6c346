"""Scrapy's settings of the project: polite by default. `[crawl]` of finevolve.toml overrides them for the pipeline."""

BOT_NAME = "finevolve"
SPIDER_MODULES = ["crawlers.spiders"]
NEWSPIDER_MODULE = "crawlers.spiders"
COMMANDS_MODULE = "crawlers.commands"

# Some of the sites answer nothing to a name that does not begin like a browser's; the name itself is honest.
USER_AGENT = "Mozilla/5.0 (compatible; FinEvolvePipeline/0.1)"
DEFAULT_REQUEST_HEADERS = {"Accept": "*/*", "Accept-Language": "zh-CN,zh;q=0.9,en;q=0.5"}

ROBOTSTXT_OBEY = False  # crawlers.middlewares.Robots does, with a policy for files that cannot be read
ROBOTS_UNAVAILABLE = "refuse"

CONCURRENT_REQUESTS = 8
CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 3.0
DOWNLOAD_DELAY_JITTER = 0  # the delay is a promise; Scrapy's chance would make half of them shorter
AUTOTHROTTLE_ENABLED = True
AUTOTHROTTLE_START_DELAY = 3.0
AUTOTHROTTLE_MAX_DELAY = 60.0
DOWNLOAD_TIMEOUT = 30
DOWNLOAD_MAXSIZE = 10_000_000
DOWNLOAD_WARNSIZE = 0
DOWNLOAD_VERIFY_CERTIFICATES = True
REDIRECT_MAX_TIMES = 5
METAREFRESH_ENABLED = False  # what a shield does, not a list; crawlers.pages tells what such a page is
COOKIES_ENABLED = True  # what a site sets is sent back; none is ever made
MOST_PAGES = 200_000

RETRY_ENABLED = False  # crawlers.middlewares.BackOff does
BACK_OFF_ATTEMPTS = 4
BACK_OFF_SECONDS = 15.0
BACK_OFF_LONGEST_SECONDS = 900.0

DOWNLOADER_MIDDLEWARES = {
    "crawlers.middlewares.Robots": 100,
    "crawlers.middlewares.BackOff": 550,
    "crawlers.middlewares.Refusals": 610,
    "crawlers.middlewares.Cookies": 700,
    "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": None,
}

EXTENSIONS = {"crawlers.middlewares.Pauses": 0}

TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
FEED_EXPORT_ENCODING = "utf-8"
LOG_LEVEL = "INFO"
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
