"""The Scrapy project that reads the nine news sites. Spiders know pages; they know neither assets nor resources."""
