"""The wording of synthetic news: our own Chinese templates, and the noise with which sources send them.

A story is a pure function of its dice, so a world is the same wherever it is made. No company or event named
here is meant to exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from finevolve_pipeline.universe import Industry

Option = TypeVar("Option")

THROWS = 24
"""Throws that one story and its formatting use at most."""


class Dice:
    """A row of random numbers, used up one by one."""

    def __init__(self, throws: Sequence[int]) -> None:
        self._throws = iter(throws)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options."""
        return options[next(self._throws) % len(options)]

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + next(self._throws) % (high - low + 1)


@dataclass(frozen=True)
class Story:
    """What happened, before a source formats it.

    Attributes:
        scope: industry, market or none.
        code: the industry, empty in the other scopes.
        tone: 1 good news, -1 bad news, 0 neither.
        title: the headline.
        body: the text under it.
    """

    scope: str
    code: str
    tone: int
    title: str
    body: str


PRODUCTS: dict[str, tuple[str, ...]] = {
    "801010": ("生猪", "玉米种子", "水产养殖", "饲料", "农产品", "白羽鸡"),
    "801030": ("纯碱", "钛白粉", "化肥", "有机硅", "聚氨酯", "化工新材料"),
    "801040": ("钢材", "螺纹钢", "粗钢", "热轧卷板", "特钢", "不锈钢"),
    "801050": ("电解铝", "铜", "稀土", "碳酸锂", "黄金", "钨"),
    "801080": ("半导体", "芯片", "存储芯片", "面板", "消费电子", "印制电路板"),
    "801110": ("空调", "冰箱", "洗衣机", "扫地机器人", "厨电", "白色家电"),
    "801120": ("白酒", "啤酒", "乳制品", "调味品", "休闲食品", "饮料"),
    "801130": ("服装", "面料", "家纺", "运动鞋服", "纺织品", "印染"),
    "801140": ("造纸", "家具", "包装纸", "文具", "定制家居", "白卡纸"),
    "801150": ("创新药", "疫苗", "医疗器械", "中药", "仿制药", "生物制药"),
    "801160": ("火电", "水电", "城市燃气", "核电运营", "供热", "电力供应"),
    "801170": ("快递", "航空运输", "集装箱航运", "港口", "高速公路", "铁路货运"),
    "801180": ("商品房", "房地产开发", "住宅用地", "物业管理", "楼市", "保障性住房"),
    "801200": ("百货", "免税店", "超市", "跨境电商", "连锁便利店", "购物中心"),
    "801210": ("酒店", "景区旅游", "餐饮", "职业教育", "出境游", "人力资源服务"),
    "801230": ("综合性集团", "多元化控股", "综合类上市公司", "多元化集团"),
    "801710": ("水泥", "玻璃", "玻纤", "防水材料", "瓷砖", "石膏板"),
    "801720": ("建筑工程", "装饰装修", "基建工程", "钢结构", "园林工程", "工程承包"),
    "801730": ("光伏组件", "动力电池", "风电设备", "储能", "特高压设备", "逆变器"),
    "801740": ("军工装备", "航空发动机", "军用无人机", "军工电子", "战斗机", "军用雷达"),
    "801750": ("软件", "信创", "云计算", "操作系统", "数据安全", "人工智能应用"),
    "801760": ("网络游戏", "电影票房", "广告营销", "影视剧", "出版", "短剧"),
    "801770": ("光模块", "5G基站", "光纤光缆", "通信设备", "通信网络", "运营商"),
    "801780": ("商业银行", "银行信贷", "城商行", "农商行", "银行理财", "国有大行"),
    "801790": ("券商", "证券公司", "保险公司", "期货公司", "信托", "财富管理"),
    "801880": ("新能源汽车", "乘用车", "汽车零部件", "商用车", "整车", "智能驾驶"),
    "801890": ("工程机械", "工业机器人", "机床", "挖掘机", "减速器", "自动化设备"),
    "801950": ("动力煤", "焦煤", "焦炭", "煤矿", "无烟煤", "煤炭"),
    "801960": ("原油", "成品油", "炼化", "石油开采", "油服", "页岩油"),
    "801970": ("污水处理", "固废处置", "垃圾焚烧", "危废处理", "环境监测", "再生资源"),
    "801980": ("化妆品", "医美", "护肤品", "面膜", "玻尿酸", "个人护理"),
}
"""Typical products by industry: what headlines name instead of the industry itself."""

_REGIONS = ("华东", "华南", "华北", "西南", "西北", "华中", "东北", "长三角", "珠三角", "成渝")
_COMPANIES = tuple(
    first + second
    for first in ("云汀", "岚屿", "澄野", "霁川", "梧泽", "砚峰", "汐禾", "曜岭")
    for second in ("控股", "实业", "集团", "股份")
)

Template = tuple[str, str]
"""Headline and opening sentence; {name} {product} {company} {region} {n} {m} {k} are filled in."""

NATIONAL: dict[int, tuple[Template, ...]] = {
    1: (
        (
            "国务院：支持{name}行业高质量发展 对{product}企业减税并发放补贴",
            "国务院印发意见，明确对{product}企业减税，三年内安排专项补贴{n}0亿元，并扩大{name}行业的投资。",
        ),
        (
            "工信部等{k}部门出台{name}扶持政策 {product}企业获补贴",
            "工信部等{k}部门联合发文，全国{name}企业均可申领补贴，{product}项目审批时限缩短{n}%。",
        ),
        (
            "发改委：下调{product}企业成本 支持{name}行业扩大需求",
            "国家发改委表示，将降低{product}企业经营成本约{n}%，多措并举提振{name}行业需求。",
        ),
        (
            "财政部：{product}减税政策延续 {name}行业迎重大利好",
            "财政部公告，{product}相关减税政策再延续{k}年，预计每年为全国{name}企业减负{n}亿元。",
        ),
        (
            "全国{product}价格大涨{n}% 供不应求创新高",
            "全国监测数据显示，{product}价格单周大涨{n}%，创{k}个月以来新高，{name}行业供不应求。",
        ),
        (
            "全国{name}行业利润大增{n}% {product}需求旺盛",
            "国家统计局数据显示，上月全国{name}行业利润同比大增{n}%，{product}需求旺盛，订单大增。",
        ),
        (
            "商务部：取消{product}出口限制 {name}出口大幅增长可期",
            "商务部宣布取消{product}出口限制，机构预计全国{name}行业出口将增长{n}%。",
        ),
    ),
    -1: (
        (
            "国务院：整治{name}行业乱象 {product}企业补贴取消",
            "国务院部署专项整治，取消{product}企业补贴，对{name}行业违规项目一律停产处罚。",
        ),
        (
            "工信部等{k}部门收紧{name}政策 {product}企业限产",
            "工信部等{k}部门联合发文，要求全国{product}企业限产{n}%，未达标的{name}项目停产整改。",
        ),
        (
            "发改委：严控{product}新增产能 {name}行业面临亏损压力",
            "国家发改委表示，{product}产能严重过剩，全国{name}行业亏损面扩大到{n}%。",
        ),
        (
            "财政部：{product}退税取消 {name}行业遭重大利空",
            "财政部公告，{product}出口退税自下月取消，预计全国{name}企业每年增加负担{n}亿元。",
        ),
        (
            "全国{product}价格大跌{n}% 需求疲软创新低",
            "全国监测数据显示，{product}价格单周大跌{n}%，创{k}个月以来新低，{name}行业需求疲软。",
        ),
        (
            "全国{name}行业利润下降{n}% {product}需求疲软",
            "国家统计局数据显示，上月全国{name}行业利润同比下降{n}%，{product}需求疲软，库存积压。",
        ),
        (
            "美国制裁升级 {product}遭加征关税 {name}出口下跌",
            "美方宣布对{product}加征关税{n}%并制裁多家企业，全国{name}行业出口订单下跌。",
        ),
    ),
}
"""Events of a whole industry, by tone."""

COMPANY: dict[int, tuple[Template, ...]] = {
    1: (
        (
            "{company}：{product}订单大增 净利润同比增长{n}%",
            "{company}公告，{product}订单大增，预计净利润同比增长{n}%。",
        ),
        ("{company}：{product}项目获批", "{company}公告，{product}项目获批，达产后年收入有望增长{n}%。"),
        ("{company}中标{n}亿元{product}合同", "{company}公告中标{n}亿元{product}合同，业绩将明显增长。"),
        (
            "{company}上调{product}价格 涨价{n}%",
            "{company}通知客户{product}涨价{n}%，公司称{region}市场供不应求。",
        ),
        ("{company}股价大涨 {product}产销两旺", "{company}股价大涨，{product}产销两旺，多家机构上调评级。"),
        (
            "{company}拟回购{n}亿元股份 {product}业务创新高",
            "{company}拟回购{n}亿元股份，{product}收入创新高。",
        ),
    ),
    -1: (
        (
            "{company}：{product}停产 预计亏损{n}亿元",
            "{company}公告，{product}生产线停产，预计全年亏损{n}亿元。",
        ),
        ("{company}因{product}质量问题遭处罚", "{company}因{product}质量问题被处罚{n}00万元，并被立案调查。"),
        (
            "{company}：{product}订单下滑 净利润下降{n}%",
            "{company}公告，{product}订单下滑，净利润同比下降{n}%。",
        ),
        ("{company}下调{product}价格 降价{n}%", "{company}通知客户{product}降价{n}%，{region}市场需求疲软。"),
        (
            "{company}股价下跌 {product}业务遭制裁",
            "{company}股价下跌，{product}业务遭制裁，多家机构下调评级。",
        ),
        (
            "{company}：{product}合同违约 计提减值{n}亿元",
            "{company}公告，{product}合同违约，计提减值{n}亿元，业绩亏损。",
        ),
    ),
    0: (
        ("{company}召开股东大会审议{product}议案", "{company}召开股东大会，审议{product}业务的日常议案。"),
        ("{company}：{product}基地接待机构调研", "{company}披露，{product}基地接待了{n}家机构调研。"),
        ("{region}举办{product}展览会", "{region}举办{product}展览会，{n}家{name}企业到场。"),
        (
            "{company}变更{product}子公司注册地址",
            "{company}公告，{product}子公司注册地址变更，手续已经办完。",
        ),
    ),
}
"""Events of one company, by tone."""

_DETAILS: dict[int, tuple[str, ...]] = {
    1: (
        "业内人士认为，这对{name}板块是明确利好。",
        "{region}多家{product}企业表示景气度回升，正在扩产。",
        "受此提振，{name}板块盘中上涨。",
        "有研报称，{product}环节盈利有望超预期。",
    ),
    -1: (
        "业内人士认为，这对{name}板块是明确利空。",
        "{region}多家{product}企业表示景气度下滑，正在减产。",
        "受此拖累，{name}板块盘中走弱下跌。",
        "有研报称，{product}环节盈利恐低于预期。",
    ),
    0: ("公司称生产经营一切照常。", "会议按议程进行。", "相关材料可在公司网站查阅。"),
}

_CLOSINGS = (
    "记者将继续关注。",
    "更多细节有待后续披露。",
    "以上信息来自公开渠道。",
    "",
)

MARKET: tuple[Template, ...] = (
    ("央行：开展{n}{m}亿元逆回购 保持流动性合理充裕", "中国人民银行开展{n}{m}亿元逆回购操作，期限{k}天。"),
    ("A股三大指数收涨 两市成交{n}{m}亿元", "沪深两市今日收涨，全天成交{n}{m}亿元，个股涨多跌少。"),
    ("A股三大指数收跌 两市成交{n}{m}亿元", "沪深两市今日收跌，全天成交{n}{m}亿元，个股跌多涨少。"),
    (
        "国家统计局：制造业采购经理指数环比变动0.{m}个百分点",
        "国家统计局公布月度采购经理指数，环比变动0.{m}个百分点，调查企业{n}00家。",
    ),
    (
        "人民币对美元中间价调整{n}个基点",
        "外汇交易中心公布，人民币对美元中间价较上日调整{n}个基点，报7.{m}{k}。",
    ),
    ("证监会：就上市公司信息披露规则征求意见", "证监会就信息披露规则第{m}号公开征求意见，反馈期为{n}天。"),
)

OTHER: tuple[Template, ...] = (
    (
        "{region}一图书馆延长开放时间{k}小时",
        "{region}一家图书馆宣布，周末延长开放{k}小时，读者可预约座位{n}{m}个。",
    ),
    ("城市马拉松报名人数达{n}{m}0人", "{region}一座城市的马拉松报名结束，共{n}{m}0人参加抽签。"),
    (
        "气象台：{region}明日多云 最高气温{k}度",
        "气象台预报，{region}明日多云，最高气温{k}度，湿度{m}%，早晚注意添衣。",
    ),
    ("{region}一中学获合唱比赛第{k}名", "{region}一所中学合唱团在比赛中获第{k}名，团员共{m}人。"),
    ("考古队在{region}发现古代陶罐{n}件", "考古队在{region}一处遗址清理出陶罐{n}件，距今约{k}{m}0年。"),
    ("业余足球联赛{region}赛区第{k}轮结束", "业余足球联赛{region}赛区第{k}轮结束，到场观众{n}{m}人。"),
)

_INDUSTRY_WIDE_SHARE = 60
"""Per cent of toned industry stories that concern the whole industry, not one company."""


def industry_story(industry: Industry, tone: int, dice: Dice) -> Story:
    """A story about the whole industry or one of its companies; a neutral one is always a company's."""
    wide = dice.number(1, 100) <= _INDUSTRY_WIDE_SHARE
    templates = NATIONAL[tone] if tone and wide else COMPANY[tone]
    title, body = _told(dice.pick(templates), _DETAILS[tone], industry, dice)
    return Story("industry", industry.code, tone, title, body)


def market_story(dice: Dice) -> Story:
    """A story about the market as a whole."""
    title, body = _told(dice.pick(MARKET), (), None, dice)
    return Story("market", "", 0, title, body)


def other_story(dice: Dice) -> Story:
    """A story without any bearing on markets."""
    title, body = _told(dice.pick(OTHER), (), None, dice)
    return Story("none", "", 0, title, body)


def _told(template: Template, details: tuple[str, ...], industry: Industry | None, dice: Dice) -> tuple[str, str]:
    headline, opening = template
    detail = dice.pick(details) if details else ""
    words = {
        "name": industry.name_zh if industry else "",
        "product": dice.pick(PRODUCTS[industry.code]) if industry else "",
        "company": dice.pick(_COMPANIES),
        "region": dice.pick(_REGIONS),
        "n": dice.number(11, 59),
        "m": dice.number(11, 99),
        "k": dice.number(3, 9),
    }
    return headline.format_map(words), (opening + detail + dice.pick(_CLOSINGS)).format_map(words)


def as_sent(story: Story, style: int, dice: Dice) -> tuple[str, str]:
    """Title and content as a source of that style sends them; some carry what cleaning must remove.

    Nine styles: plain; a lead in 【】 and no title; HTML paragraphs; full-width indents; all of it again as
    the title; HTML entities; stray line breaks; NUL characters now and then; an inline link.
    """
    title, body = story.title, story.body
    match style % 9:
        case 0:
            return title, body
        case 1:
            return "", f"【{title}】{body}"
        case 2:
            return title, "<p>" + body.replace("。", "。</p><p>", 1) + "</p>"
        case 3:
            return f"\u3000{title}", f"\u3000\u3000{body}\u3000"
        case 4:
            return f"【{title}】{body}", f"【{title}】{body}"
        case 5:
            return title, f"&nbsp;&nbsp;{body}&nbsp;"
        case 6:
            return f"{title}\n", "\r\n" + body.replace("。", "。\r\n")
        case 7:
            return title, f"{body}\x00" if dice.number(1, 10) == 1 else body
        case _:
            return title, f'{body}<a href="https://news.invalid/more" target="_blank"></a><br/>'
