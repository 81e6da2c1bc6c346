"""The lexicon tags as a reader would: statements on headlines written for these tests."""

from __future__ import annotations

import pytest

from finevolve_pipeline.llm.rules.lexicon import Matcher, events, industry_words, name_endings
from finevolve_pipeline.llm.rules.tagger import tag
from finevolve_pipeline.universe import CODES, industry

HEADLINES = {
    "农林牧渔": "生猪价格连续三周回升 能繁母猪存栏继续下降",
    "基础化工": "钛白粉企业集体上调报价 纯碱与烧碱跟涨",
    "钢铁": "多家钢厂宣布螺纹钢减产 铁矿石库存走高",
    "有色金属": "沪铜创年内新高 电解铝库存降至低位",
    "电子": "存储芯片合约价大涨 晶圆厂产能满载",
    "家用电器": "空调排产同比大增 家电以旧换新拉动销售",
    "食品饮料": "白酒旺季批价企稳 啤酒企业推新品",
    "纺织服饰": "纺织服装出口回暖 运动品牌订单改善",
    "轻工制造": "木浆价格上行 造纸企业发布涨价函",
    "医药生物": "国产创新药对外授权再落一单 医保目录调整启动",
    "公用事业": "全社会用电量创历史新高 火电与水电出力增加",
    "交通运输": "集运欧线运价走高 航空公司加密国际航线",
    "房地产": "一线城市二手房成交放量 房企融资白名单扩围",
    "商贸零售": "离岛免税销售回升 跨境电商平台备货",
    "社会服务": "假期旅游预订火热 酒店与景区客流大增",
    "综合": "某综合性集团完成多元化控股架构调整",
    "建筑材料": "水泥价格全国普涨 浮法玻璃去库",
    "建筑装饰": "建筑央企新签合同额增长 基建项目加快落地",
    "电力设备": "光伏组件排产提升 储能电池订单饱满",
    "国防军工": "商业航天发射提速 可回收火箭完成试验",
    "计算机": "国产大模型开源 操作系统与数据库厂商适配",
    "传媒": "游戏版号发放 暑期档电影票房走强",
    "通信": "光模块需求旺盛 运营商加快5G-A建设",
    "银行": "商业银行净息差企稳 不良贷款率下降",
    "非银金融": "券商两融业务增长 险资加大权益配置",
    "汽车": "新能源汽车零售渗透率再创新高 乘用车出口增长",
    "机械设备": "人形机器人量产在即 工业母机订单回升",
    "煤炭": "动力煤价格反弹 焦煤库存偏低",
    "石油石化": "布伦特原油突破关口 炼厂开工率下降",
    "环保": "污水处理收费改革 垃圾焚烧企业受益",
    "美容护理": "国货化妆品大促热卖 医美机构客流恢复",
}


def test_every_industry_has_a_headline_here() -> None:
    assert {industry(name).code for name in HEADLINES} == set(CODES)


@pytest.mark.parametrize(("name", "headline"), HEADLINES.items())
def test_a_plain_headline_gets_its_industry_first(name: str, headline: str) -> None:
    found = tag(headline, "")
    assert found.scope == "industry"
    assert industry(name).code in found.industries
    assert f"{name}（“" in found.reason


@pytest.mark.parametrize(
    ("headline", "wrong"),
    [
        ("央行开展逆回购操作", "银行"),
        ("欧洲央行官员谈通胀", "银行"),
        ("世界银行下调全球增长预测", "银行"),
        ("特高压与变压器招标提速 电力设备订单增长", "公用事业"),
        ("宏观数据综合来看好于预期", "综合"),
        ("国际货币基金组织发布展望", "非银金融"),
        ("外媒：美股三大指数走低", "传媒"),
        ("无锡举办马拉松", "有色金属"),
        ("酒泉迎来大风天气", "食品饮料"),
        ("国金证券研报：半导体景气回升", "非银金融"),
        ("高盛：上调铜价预测", "非银金融"),
        ("黎巴嫩方面发射火箭弹", "国防军工"),
        ("MAIL服务短暂中断后恢复", "计算机"),
    ],
)
def test_words_inside_other_words_do_not_count(headline: str, wrong: str) -> None:
    assert industry(wrong).code not in tag(headline, "").industries


@pytest.mark.parametrize(
    ("headline", "scope"),
    [
        ("沪指收跌1.2% 两市成交额不足万亿", "market"),
        ("美联储维持利率不变", "market"),
        ("国家统计局：8月CPI同比上涨0.3%", "market"),
        ("以军空袭黎巴嫩南部", "market"),
        ("离岸人民币兑美元日内涨百点", "market"),
        ("某地发生3.2级地震", "none"),
        ("世界杯预选赛开赛", "none"),
        ("知名演员宣布结婚", "none"),
        ("城区突发车祸 两人受伤", "none"),
        ("外交部副部长会见来访客人", "none"),
    ],
)
def test_news_without_an_industry_is_market_wide_or_none(headline: str, scope: str) -> None:
    found = tag(headline, "")
    assert (found.scope, found.industries) == (scope, ())


def test_the_title_weighs_more_than_the_body() -> None:
    body = "此外，公司提到煤炭采购成本、航运价格与白酒渠道。"
    assert tag("半导体设备订单大增", body).industries == ("801080",)


def test_a_companys_notice_gets_its_industry_by_name_or_by_ending() -> None:
    assert tag("牧原股份：7月销售收入同比增长", "牧原股份(002714.SZ)公告称，公司销售收入增长。").industries == (
        "801010",
    )
    assert tag("测试合金：拟回购股份", "测试合金(300999.SZ)公告称，拟以自有资金回购股份。").industries == ("801050",)
    assert tag("测试合金", "路过的人说起。").industries == ()


def test_a_broker_is_the_subject_of_its_own_notice() -> None:
    notice = tag("中信证券：上半年净利润同比增长20%", "中信证券(600030.SH)公告称，净利润增长。")
    assert notice.industries == ("801790",)


def test_a_large_move_of_crude_also_moves_transportation() -> None:
    assert tag("WTI原油期货大涨6%", "").industries == ("801170", "801960")
    assert tag("WTI原油期货涨0.6%", "").industries == ("801960",)


def test_at_most_four_industries_are_named() -> None:
    found = tag("水泥、钢铁、煤炭、白酒、银行、券商、光伏、半导体齐涨", "")
    assert len(found.industries) == 4
    assert list(found.industries) == sorted(found.industries)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("国务院印发人工智能行动方案", "某市召开人工智能座谈会"),
        ("工信部等三部门印发光伏行业规范", "某光伏公司：投资者提问产能情况"),
        ("存储芯片龙头宣布全线涨价30%", "存储芯片概念早盘活跃"),
        ("现货黄金日内大跌8%", "现货黄金日内跌0.3%"),
        ("沪指大跌4%", "沪指微跌0.1%"),
        ("伊朗关闭霍尔木兹海峡", "伊朗外长与来访者通电话"),
        ("央行宣布降准", "央行副行长出席论坛并致辞"),
        ("宁德时代：半年净利润同比增长120%", "宁德时代：聘任证券事务代表"),
    ],
)
def test_importance_orders_events_as_a_reader_would(more: str, less: str) -> None:
    code = "公告(300750.SZ)称" if "宁德时代" in more else ""
    assert tag(more, code).importance > tag(less, code).importance


@pytest.mark.parametrize(
    "headline",
    [
        "国务院印发人工智能行动方案",
        "伊朗宣布关闭霍尔木兹海峡",
        "存储芯片龙头宣布全线涨价30%",
        "央行宣布降准0.5个百分点",
    ],
)
def test_large_events_pass_the_benchmarks_threshold(headline: str) -> None:
    assert tag(headline, "").importance >= 8


@pytest.mark.parametrize(
    "headline", ["现货白银日内跌0.2%", "南向资金净买入额超50亿港元", "某地发生4.1级地震", "某公司：聘任董事会秘书"]
)
def test_routine_news_stays_below_it(headline: str) -> None:
    assert tag(headline, "").importance <= 5


def test_the_reason_names_kind_scope_and_ground() -> None:
    reason = tag("存储芯片龙头宣布全线涨价30%", "").reason
    assert reason.startswith("事件类型：产品涨价（“涨价”）；影响范围：电子（“存储芯片”）")
    assert reason.endswith("。")


def test_topics_are_sorted_and_known() -> None:
    known = set(events().topics)
    for headline in HEADLINES.values():
        topics = tag(headline, "").topics
        assert topics
        assert list(topics) == sorted(topics)
        assert set(topics) <= known


@pytest.mark.parametrize(
    "text", ["", " ", "\u3000", "a" * 100_000, "<<<>>>", "\ud83d\ude00" * 3, "İ" * 200, "%%%%", "（000000.SZ）："]
)
def test_any_text_gets_a_valid_tag(text: str) -> None:
    found = tag(text, text)
    assert 1 <= found.importance <= 10
    assert found.scope in {"industry", "market", "none"}
    assert (found.scope == "industry") == bool(found.industries)


def test_tags_do_not_depend_on_what_was_tagged_before() -> None:
    alone = [tag(headline, "") for headline in HEADLINES.values()]
    assert [tag(headline, "") for headline in reversed(HEADLINES.values())] == alone[::-1]


def test_the_dateline_of_the_agency_does_not_count() -> None:
    assert tag("财联社3月6日电，铜价上涨。", "财联社3月6日电，铜价上涨。") == tag("铜价上涨。", "")


def test_the_lexicon_is_rich_and_every_industry_has_words() -> None:
    spoken = industry_words()
    assert len(spoken) >= 1500
    assert sum(word.company for word in spoken.values()) >= 500
    assert {code for word in spoken.values() for code, _ in word.votes} == set(CODES)
    assert set(name_endings().values()) <= set(CODES)


def test_the_longest_word_counts_and_latin_words_stand_alone() -> None:
    matcher = Matcher({"ai": 1, "电力": 2, "电力设备": 3, "cpo": 4})
    assert [word for _, word, _ in matcher.longest("ai电力设备与电力，mail cpo概念cpox")] == [
        "ai",
        "电力设备",
        "电力",
        "cpo",
    ]
    assert [word for _, word, _ in matcher.every("电力设备")] == ["电力", "电力设备"]
    assert list(Matcher[int]({}).longest("电力")) == []
