# The words of the demo stories: names, places, things, and small tables whose columns belong together.
"""Word lists only. A row of a table is one consistent choice (a thing, what breaks, what mends it)."""

GIRLS = """Lily Mia Emma Anna Sara Ella Lucy Zoe Ruby Nora Ivy Molly Rosie Amy Jane Kate Lola Maya Nina Clara Daisy
Eva Grace Hana Isla Julia Kira Leah Mary Penny Rita Sofia Tina Wendy Alice Bella Cora Dora Elsa Fiona Gina Holly
Iris Jenny Lena Mila Nelly Olive Polly Rosa Stella Tess Una Vera Willa Yara Ada Beth Celia Elena""".split()
BOYS = """Tom Ben Max Sam Jack Leo Tim Finn Jake Luke Noah Oscar Adam Billy Charlie Dan Eli Fred George Harry Ian
Joe Kai Liam Mark Nick Owen Paul Ray Simon Ted Victor Will Zack Alex Bob Carl David Ethan Frank Gus Henry Ivan
James Ken Lars Milo Ned Omar Peter Ravi Sean Toby Theo Walt Andy Bruno Colin Dylan Ezra""".split()
ANIMAL_NAMES = """Pip Bobo Fluffy Patch Coco Biscuit Nibbles Sunny Pebble Button Dotty Fuzzy Ginger Hazel Jojo Momo
Mango Peanut Pepper Poppy Puddle Rusty Scout Spot Tiny Toto Waffle Whiskers Ziggy Bubbles Clover Maple Muffin
Olly Pickle Snowy Star Twig Binky Dash""".split()
ANIMALS = """rabbit bear fox mouse duck squirrel frog turtle hedgehog owl kitten puppy lamb pony goat pig monkey
panda beaver otter raccoon penguin chick deer lion elephant giraffe koala badger donkey""".split()

TRAITS = """kind brave curious clever shy cheerful gentle quiet funny friendly careful happy busy playful polite
helpful lively sweet""".split()
FEEL_SAD = """sad upset unhappy worried""".split()
FEEL_HAPPY = """happy glad proud cheerful joyful""".split()
COLOURS = """red blue green yellow orange pink purple white brown golden silver""".split()
LOOKS = """shiny soft tiny big small pretty old new round bright""".split()
SKY = ["The sun was shining.", "The sky was blue.", "The birds were singing.", "A soft wind was blowing.",
       "The air was warm and sweet.", "White clouds floated in the sky.", "It was a warm day.",
       "The grass was still wet.", "Bees were buzzing around the flowers.", "The sky was clear and bright."]
TIMES = ["One day", "One morning", "One sunny day", "One afternoon", "One bright morning", "One Sunday",
         "One summer day", "One cool day", "One Saturday morning", "One spring day", "One quiet afternoon"]
HOMES = ["in a small house near the forest", "in a little village", "in a big city", "in a house by the sea",
         "on a farm", "in a yellow house on a hill", "in a cozy cottage", "near a quiet lake", "in a small town",
         "at the end of a long road", "next to a green field", "in a tall house with a red door",
         "by a wide river", "at the foot of a mountain", "in a warm valley"]
WILD_HOMES = ["in a green forest", "in a hollow tree", "near a quiet pond", "in a big meadow", "on a sunny farm",
              "under an old oak tree", "by a clear stream", "in a warm burrow", "at the edge of the woods",
              "on a grassy hill", "in a small cave", "behind the old barn"]

# (bare place, with preposition)
PLACES = [("the park", "in the park"), ("the beach", "on the beach"), ("the garden", "in the garden"),
          ("the forest", "in the forest"), ("the lake", "by the lake"), ("the river", "by the river"),
          ("the market", "at the market"), ("the farm", "on the farm"), ("the hill", "on the hill"),
          ("the meadow", "in the meadow"), ("the playground", "at the playground"), ("the pond", "by the pond"),
          ("the old barn", "in the old barn"), ("the village square", "in the village square"),
          ("the field", "in the field"), ("the library", "in the library"), ("the orchard", "in the orchard"),
          ("the bridge", "near the bridge"), ("the woods", "in the woods"), ("the yard", "in the yard")]

TOYS = """ball doll kite drum truck boat train robot puzzle car teddy top whistle wagon hoop""".split()
KEEPSAKES = """hat scarf ring bell book key box cup coin button ribbon shell lamp basket umbrella bag mitten watch
necklace crown flute map blanket feather stone brush""".split()
FOODS = ["apple", "pear", "cookie", "sandwich", "carrot", "banana", "muffin", "orange", "pancake", "plum", "cupcake",
         "peach", "berry pie", "piece of bread", "slice of cake", "bowl of soup"]
PARENTS = [("mom", "she", "her"), ("dad", "he", "him"), ("grandma", "she", "her"), ("grandpa", "he", "him"),
           ("aunt", "she", "her"), ("uncle", "he", "him"), ("big sister", "she", "her"), ("big brother", "he", "him")]
WORKERS = [("farmer", "he", "him"), ("baker", "she", "her"), ("teacher", "she", "her"), ("gardener", "he", "him"),
           ("doctor", "she", "her"), ("fisherman", "he", "him"), ("shopkeeper", "he", "him"),
           ("mail carrier", "she", "her"), ("painter", "she", "her"), ("old woman", "she", "her"),
           ("old man", "he", "him"), ("bus driver", "he", "him"), ("librarian", "she", "her")]
GAMES = ["tag", "hide and seek", "catch", "follow the leader", "pirates", "a guessing game", "hopscotch", "ball"]
LIKES = [("play outside", "playing outside"), ("draw pictures", "drawing pictures"), ("sing songs", "singing songs"),
         ("read books", "reading books"), ("climb trees", "climbing trees"), ("run very fast", "running very fast"),
         ("dance", "dancing"), ("look at the stars", "looking at the stars"), ("pick flowers", "picking flowers"),
         ("build things", "building things"), ("tell jokes", "telling jokes"), ("help others", "helping others"),
         ("eat sweet things", "eating sweet things"), ("jump in puddles", "jumping in puddles"),
         ("watch the birds", "watching the birds"), ("explore", "exploring"), ("paint", "painting"),
         ("collect stones", "collecting stones"), ("play with friends", "playing with friends"),
         ("bake", "baking")]

# where a lost thing turns up: (where, hint of the search)
HIDING = [("under the bed", "the bedroom"), ("behind the sofa", "the living room"), ("under a bush", "the garden"),
          ("in a pile of leaves", "the yard"), ("inside an old boot", "the hall"), ("behind a big rock", "the path"),
          ("under the kitchen table", "the kitchen"), ("in the tall grass", "the field"),
          ("at the bottom of the toy box", "the playroom"), ("next to the fence", "the yard"),
          ("in a bird's nest", "the old tree"), ("under a warm blanket", "the bedroom")]
# what is stuck: (thing, where, how it comes down)
STUCK = [("kite", "in a tall tree", "used a long stick to push it down"),
         ("ball", "on the roof", "climbed a ladder and threw it down"),
         ("balloon", "under the high ceiling", "jumped up and caught the string"),
         ("hat", "on a high branch", "shook the branch until it fell"),
         ("boat", "in the middle of the pond", "made waves with a stick until it came back"),
         ("scarf", "on top of the fence", "stood on a box and pulled it free"),
         ("ball", "in a deep hole", "used a net to lift it out"),
         ("shoe", "in the thick mud", "pulled and pulled until it came out with a pop"),
         ("paper plane", "on top of the shelf", "stood on a chair and reached it")]
# what breaks: (thing, damage, repair)
BROKEN = [("toy car", "a wheel came off", "put the wheel back with a small screw"),
          ("doll", "its arm fell off", "sewed the arm back with strong thread"),
          ("kite", "the paper tore", "put tape over the hole"), ("cup", "the handle broke", "glued the handle back on"),
          ("wagon", "its handle cracked", "tied the handle with rope"),
          ("toy boat", "the mast snapped", "made a new mast from a stick"),
          ("teddy bear", "a seam split open", "closed the seam with a needle and thread"),
          ("drum", "the top ripped", "stretched a new skin over the top"),
          ("picture frame", "one corner split", "hammered a little nail into the corner"),
          ("music box", "it stopped playing", "cleaned the tiny gears and turned the key"),
          ("robot", "its head fell off", "screwed the head back on"),
          ("book", "some pages came out", "put the pages back with glue")]
# a fear: (noun, what happened, the comfort, the discovery)
FEARS = [("the dark", "The light went out and the room was black", "turned on a small lamp", "the dark was only quiet"),
         ("thunder", "A loud boom shook the window", "held {him} close and counted to ten",
          "the thunder was only noise"),
         ("deep water", "The water looked cold and very deep", "stayed close the whole time",
          "the water could hold {him} up"),
         ("big dogs", "A big dog ran up and barked", "showed {him} how to let the dog smell a hand",
          "the dog only wanted to play"),
         ("high places", "The ladder looked taller than the trees", "told {him} to take one small step at a time",
          "the view was beautiful"),
         ("the wind", "The wind howled around the house", "sang a soft song",
          "the wind was only playing with the leaves"),
         ("spiders", "A spider came down on a thin thread", "showed {him} the pretty web",
          "the spider was very small and very busy"),
         ("the first day of school", "There were so many new faces", "walked with {him} to the door",
          "everyone else was a little scared too"),
         ("the doctor", "The room was white and strange", "let {him} hold a soft toy",
          "it did not hurt at all"),
         ("shadows", "A long shadow moved on the wall", "opened the curtain", "the shadow came from a small tree")]
# a skill: (verb phrase, gerund, a failure, advice)
SKILLS = [("ride a bike", "riding the bike", "fell on the grass", "look ahead and keep pedaling"),
          ("swim", "swimming", "swallowed some water", "kick slowly and breathe"),
          ("whistle", "whistling", "only blew air", "make your lips small and blow gently"),
          ("tie a knot", "tying the knot", "made a big tangle", "go around once and pull it through"),
          ("skate", "skating", "slipped and sat down hard", "bend your knees a little"),
          ("read", "reading", "mixed up all the letters", "say one sound at a time"),
          ("jump rope", "jumping", "stepped on the rope", "listen to the beat of the rope"),
          ("play the flute", "playing the flute", "made a terrible squeak", "blow softly like a small breeze"),
          ("draw a horse", "drawing the horse", "drew something like a potato", "start with simple round shapes"),
          ("catch a ball", "catching the ball", "dropped it every time", "keep your eyes on the ball"),
          ("row a boat", "rowing", "went around in circles", "pull both sides together"),
          ("climb the rope", "climbing", "slid back down", "use your feet as well as your arms")]
# a hurt animal: (animal, harm, care, farewell)
HURT = [("bird", "a hurt wing", "wrapped the wing in a soft cloth", "flew up into the sky"),
        ("kitten", "a thorn in its paw", "pulled the thorn out very slowly", "purred and licked everyone"),
        ("butterfly", "wet wings", "put it on a warm leaf in the sun", "danced away over the flowers"),
        ("puppy", "a sore leg", "cleaned the leg with warm water", "ran in happy circles"),
        ("baby duck", "no mother near it", "carried it gently back to the pond", "swam to its mother"),
        ("squirrel", "its tail caught in a fence", "lifted the wire with great care", "jumped up the nearest tree"),
        ("turtle", "its feet in the air", "turned it over with both hands", "walked slowly back to the water"),
        ("fish", "hardly any water in its puddle", "carried it to the river in a bucket", "splashed with its tail"),
        ("hedgehog", "its head stuck in a can", "pulled the can off bit by bit", "went back under the leaves"),
        ("bee", "no strength to fly", "gave it a drop of honey", "buzzed away to a flower")]
# cooking: (dish, first step, the mishap, second try)
DISHES = [("cake", "mixed the flour and the eggs", "put in salt instead of sugar", "tasted everything first"),
          ("soup", "cut the carrots and the beans", "let the pot boil over", "stirred it slowly"),
          ("batch of cookies", "rolled the dough into balls", "forgot them in the oven", "watched the clock"),
          ("loaf of bread", "pressed the dough with both hands", "forgot the yeast", "waited until the dough grew"),
          ("pie", "filled the crust with berries", "dropped it on the floor", "carried it with two hands"),
          ("fruit salad", "washed the fruit in cold water", "knocked over the bowl", "put the bowl on a flat table"),
          ("stack of pancakes", "poured the batter into the pan", "burned the first one", "made the fire smaller"),
          ("pot of jam", "picked a basket of plums", "spilled half of it", "used a bigger pot"),
          ("pizza", "spread the sauce with a spoon", "tore a hole in the dough", "pushed the dough gently")]
# growing: (seed, what it becomes, a danger, a remedy)
PLANTS = [("sunflower seed", "tall sunflower", "The days were hot and the soil was dry", "brought water every evening"),
          ("bean", "long green vine", "A strong wind bent the little plant", "tied it to a stick"),
          ("pumpkin seed", "huge orange pumpkin", "Hungry snails came at night", "carried the snails to another place"),
          ("acorn", "young oak tree", "Tall weeds hid the sun", "pulled out the weeds one by one"),
          ("tulip bulb", "bright red tulip", "The ground was cold and hard", "covered it with warm straw"),
          ("apple seed", "small apple tree", "A goat wanted to eat the leaves", "built a little fence"),
          ("tomato seed", "bush full of tomatoes", "It rained for many days", "dug a small path for the water"),
          ("strawberry plant", "row of sweet strawberries", "The birds came to peck", "hung up shiny ribbons")]
# weather that stops a plan: (event, indoor answer, after it)
WEATHER = [("it started to rain", "built a tent from blankets", "a rainbow came out"),
           ("a thick fog came down", "told stories by the fire", "the sun broke through"),
           ("it began to snow", "made hot cocoa", "the whole world was white"),
           ("the wind blew very hard", "made paper birds", "the air was still again"),
           ("a storm came", "played games on the floor", "the air smelled fresh"),
           ("it got much too hot", "sat in the cool shade with lemonade", "a gentle breeze came"),
           ("dark clouds filled the sky", "painted a big picture of the sun", "the clouds went away")]
# a contest: (event, the rival's way, the hero's way)
CONTESTS = [("running race", "ran too fast at the start", "kept a steady pace"),
            ("boat race", "laughed and did not look ahead", "steered with care"),
            ("singing contest", "did not practice at all", "practiced every evening"),
            ("drawing contest", "rushed to be first", "took plenty of time"),
            ("sack race", "made jumps that were too big", "made many small jumps"),
            ("sandcastle contest", "used dry sand", "used wet sand and built a strong wall"),
            ("cooking contest", "put in too much pepper", "followed the recipe"),
            ("swimming race", "splashed too much", "swam in a straight line"),
            ("spelling contest", "shouted before thinking", "thought about each letter")]
# a wish: (wish, what goes wrong, lesson)
WISHES = [("a mountain of candy", "had a very bad stomach ache", "too much of a good thing is not good"),
          ("a house made of gold", "was cold all night", "a warm home is better than gold"),
          ("to be as tall as a tree", "could not fit through the door", "it was good to be small"),
          ("to be able to fly", "got lost in the clouds", "home was the best place of all"),
          ("to never have to sleep", "was too tired to play", "rest is important"),
          ("a hundred toys", "had no room to walk", "a few good toys are enough"),
          ("to be invisible", "could not find anyone to play with", "it is good to be seen by friends"),
          ("summer that never ends", "missed the snow very much", "every season has its joy")]
# jobs to do: (task, the tool, the reward)
CHORES = [("clean the messy room", "a big broom", "the room was bright and clean"),
          ("rake the leaves", "an old rake", "there was a huge pile to jump in"),
          ("wash the muddy dog", "a tub of warm water", "the dog was soft and white"),
          ("carry the wood", "a little wagon", "there was enough wood for a warm fire"),
          ("paint the fence", "a bucket of paint", "the fence looked as good as new"),
          ("pick all the apples", "three baskets", "there was enough fruit for a pie"),
          ("feed the chickens", "a bag of corn", "the hens gave six fresh eggs"),
          ("fold the laundry", "a tall basket", "the shelf was neat and tidy"),
          ("sweep the long path", "a straw broom", "everyone could walk without slipping")]
MORALS = ["it is good to ask for help", "friends help each other", "sharing makes everyone happy",
          "it is important to be kind",  "small things can make a big difference", "it is good to try again", "helping others feels good"]
